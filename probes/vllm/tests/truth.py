"""What `schedule()` really did, seen by following its own lines: which `break` and `continue` it took, for whom."""

import ast
import inspect
import sys
import textwrap
from contextlib import contextmanager

RUNNING = [("num_output_placeholders > 0", 12), ("next_decode_eligible_step", 13), ("num_new_tokens == 0", 12)]
WAITING = [
    ("not ready_to_schedule", None),
    ("num_stale_output_tokens", 11),
    ("self.max_num_active_reqs", 1),
    ("not request_queue", 0),
    ("enable_chunked_prefill", 2),
    ("new_blocks is None", 3),
]
STATUS = {"WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": 7, "WAITING_FOR_REMOTE_KVS": 9, "WAITING_FOR_STREAMING_REQ": 15}


class Truth:
    def __init__(self, scheduler_class):
        original = inspect.unwrap(scheduler_class.schedule)
        self.code = original.__code__
        tree = ast.parse(textwrap.dedent(inspect.getsource(original)))
        shift = self.code.co_firstlineno - 1
        loops = [node for node in ast.walk(tree) if isinstance(node, ast.While)]
        running = next(loop for loop in loops if "req_index < len(self.running)" in ast.unparse(loop.test))
        waiting = next(loop for loop in loops if ast.unparse(loop.test) == "token_budget > 0")
        self.lines = {}
        for loop, table in (running, RUNNING), (waiting, WAITING):
            for branch in [node for node in ast.walk(loop) if isinstance(node, ast.If)]:
                test = ast.unparse(branch.test)
                for step in branch.body:
                    if isinstance(step, (ast.Break, ast.Continue)):
                        reason = next((reason for words, reason in table if words in test), -1)
                        kind = "break" if isinstance(step, ast.Break) else "continue"
                        self.lines[step.lineno + shift] = (loop is waiting, kind, reason)
        self.entered_waiting = {waiting.body[0].lineno + shift, waiting.lineno + shift}

    @contextmanager
    def watching(self):
        self.events, self.head, self.blocks, self.waiting = [], None, None, False

        def local(frame, event, arg):
            if event == "line":
                if frame.f_lineno in self.entered_waiting:
                    self.waiting = True
                if found := self.lines.get(frame.f_lineno):
                    in_waiting, kind, reason = found
                    request = frame.f_locals.get("request")
                    self.events.append((in_waiting, kind, reason, request))
                    if in_waiting and kind == "break" and reason in (2, 3):
                        self.head = request
                        self.blocks = needed(frame.f_locals) if reason == 3 else None
            return local

        previous = sys.gettrace()
        sys.settrace(lambda frame, event, arg: local if frame.f_code is self.code else None)
        try:
            yield self
        finally:
            sys.settrace(previous)

    def reasons(self, scheduler, output) -> dict:
        """Request id: reason, of everybody whom this step left without tokens."""
        end = next((reason for waiting, kind, reason, _ in self.events if waiting and kind == "break"), None)
        if end is None:
            # Not entered because of a preemption or a pause, or left because the tokens had run out.
            end = 2 if self.waiting else 5 if any(self.preempted(scheduler, output)) else 14
        if end == 0:
            end = 14 if scheduler._pause_state.name == "PAUSED_NEW" else 0
        reasons = {}
        for _, kind, reason, request in self.events:
            if kind == "continue" and request.request_id not in output.num_scheduled_tokens:
                status = STATUS.get(request.status.name)
                reasons[request.request_id] = reason if reason is not None else status
        for request in (*scheduler.running, *scheduler.waiting, *scheduler.kv_holding_waiting):
            id = request.request_id
            if request.status.name == "WAITING_FOR_STREAMING_REQ":
                reasons[id] = STATUS[request.status.name]
            elif id not in output.num_scheduled_tokens and id not in reasons:
                reasons[id] = 4 if end == 3 and request is not self.head else end
        return reasons

    def preempted(self, scheduler, output):
        return [r for r in scheduler.waiting if r.request_id in output.preempted_req_ids - self.reset]

    reset: set = frozenset()


def needed(names) -> int:
    """The engine's own count, as `allocate_slots` makes it, with the names in `schedule()` at the refusal."""
    scheduler, request = names["self"], names["request"]
    manager = scheduler.kv_cache_manager
    local = request.num_computed_tokens + names["num_new_local_computed_tokens"]
    tokens = min(request.num_tokens, manager.max_model_len)
    if not scheduler.scheduler_reserve_full_isl:
        tokens = min(local + names["num_new_tokens"], manager.max_model_len)
    blocks = manager.coordinator.get_num_blocks_to_allocate(
        request_id=request.request_id,
        num_tokens=tokens,
        new_computed_blocks=names["new_computed_blocks"].blocks,
        num_encoder_tokens=0,
        total_computed_tokens=local,
        num_local_computed_tokens=local,
        num_tokens_main_model=tokens,
        apply_admission_cap=True,
        prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
    )
    return blocks + (manager.watermark_blocks if scheduler.running else 0)
