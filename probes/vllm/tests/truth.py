"""What `schedule()` really did, seen by following its own lines: which `break` and `continue` it took, for whom, and with what
in its variables. Nothing here knows a rule of scheduling: the tables only give the branches of the installed source a name, and
a branch that has none is an error."""

import ast
import inspect
import sys
import textwrap
from contextlib import contextmanager

SEQUENCES, TOKENS, BLOCKS, HEAD_OF_LINE, PREEMPTION, PRIORITY = 1, 2, 3, 4, 5, 6
GRAMMAR, ADAPTER, REMOTE, ENCODER, STALE, IN_FLIGHT, CADENCE, PAUSED, OTHER = 7, 8, 9, 10, 11, 12, 13, 14, 15

INNER, BY_STATUS, EMPTY_OR_INPUT, ALLOCATION = "inner", "status", "queue", "allocation"  # not reasons yet

# Words in the test of the `if` around a `break` or `continue`, in order of their precision: what it means.
RUNNING = [
    ("input_budget <= draft_slots", TOKENS),
    ("num_output_placeholders > 0", IN_FLIGHT),
    ("next_decode_eligible_step", CADENCE),
    ("defer_prefills", CADENCE),
    ("ensure_cache_available", ENCODER),
    ("num_new_tokens == 0", IN_FLIGHT),
    ("new_blocks is not None", INNER),
    ("has_pending_block_frees", INNER),
    ("_request_blocks_can_be_freed", INNER),
    ("preempted_req == request", INNER),
    ("new_blocks is None", PREEMPTION),
]
WAITING = [
    ("_is_blocked_waiting_status", BY_STATUS),
    ("not ready_to_schedule", BY_STATUS),
    ("num_stale_output_tokens", STALE),
    ("max_loras", ADAPTER),
    ("ext_tokens is None", (OTHER, 4)),
    ("_ec_transfer_pending", (OTHER, 4)),
    ("ensure_cache_available", (OTHER, 4)),
    ("load_kv_async", REMOTE),
    ("not request_queue", EMPTY_OR_INPUT),
    ("input_budget <= draft_slots", TOKENS),
    ("max_num_active_reqs", SEQUENCES),
    ("max_num_running_reqs", SEQUENCES),
    ("defer_prefills", CADENCE),
    ("padded_num_tokens > request_token_budget", TOKENS),
    ("enable_chunked_prefill", TOKENS),
    ("num_new_tokens == 0", (OTHER, 1)),
    ("scheduler_reserve_full_isl", ALLOCATION),
    ("new_blocks is None", ALLOCATION),
]
HEADED = (
    "defer_prefills", "padded_num_tokens", "enable_chunked_prefill", "num_new_tokens == 0", "reserve_full_isl", "new_blocks",
)  # fmt: skip
STATUS = {
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": (GRAMMAR, 0),
    "WAITING_FOR_REMOTE_KVS": (REMOTE, 0),
    "WAITING_FOR_STREAMING_REQ": (OTHER, 3),
}


class Truth:
    """Of one scheduler class."""

    def __init__(self, scheduler_class):
        original = inspect.unwrap(scheduler_class.schedule)
        self.code = original.__code__
        tree = ast.parse(textwrap.dedent(inspect.getsource(original)))
        self.shift = self.code.co_firstlineno - 1
        self.lines = {}  # line of a `break` or `continue`: (in the waiting loop, which, its name, ended by the head)
        self.victims = {}  # line of a call of `_preempt_request`
        loops = [node for node in ast.walk(tree) if isinstance(node, ast.While)]
        running = one([node for node in loops if "req_index < len(self.running)" in ast.unparse(node.test)])
        waiting = one([
            node for node in loops if "token_budget > 0" in ast.unparse(node.test) and "req_index" not in ast.unparse(node.test)
        ])  # fmt: skip
        for loop, table in (running, RUNNING), (waiting, WAITING):
            self.name_branches(loop.body, loop, table, loop is waiting, None)
        for node in ast.walk(running):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "self._preempt_request":
                self.victims[node.lineno + self.shift] = None
        assert len(self.victims) == 1, "one place in schedule() preempts"
        self.entered_waiting = {waiting.body[0].lineno + self.shift, waiting.lineno + self.shift}

    def name_branches(self, body, loop, table, in_waiting, test) -> None:
        for node in body:
            if isinstance(node, (ast.Break, ast.Continue)):
                meaning = next((meaning for words, meaning in table if test and words in test), None)
                if meaning is None:
                    raise AssertionError(f"schedule() line {node.lineno + self.shift}: no name for a branch under `if {test}`")
                kind = "break" if isinstance(node, ast.Break) else "continue"
                headed = in_waiting and kind == "break" and any(words in test for words in HEADED)
                self.lines[node.lineno + self.shift] = (in_waiting, kind, meaning, headed)
            elif isinstance(node, ast.If):
                self.name_branches(node.body, loop, table, in_waiting, ast.unparse(node.test))
                self.name_branches(node.orelse, loop, table, in_waiting, f"else of {ast.unparse(node.test)}")
            elif isinstance(node, (ast.With, ast.While, ast.For)):
                self.name_branches(node.body, loop, table, in_waiting, test)

    @contextmanager
    def watching(self, scheduler):
        """Follow the calls of `schedule()` inside."""
        self.own = {}  # request id: why it was left out, by its own branch
        self.running_end = self.waiting_end = self.head = None
        self.need = 0
        self.entered = False
        self.preemptions = {}  # victim's id: preemptor's id, whether it was outranked, blocks free before, blocks it held
        self.counts = {}  # request id: blocks that the engine last counted for it

        def local(frame, event, arg):
            if event == "line":
                line = frame.f_lineno
                if line in self.entered_waiting:
                    self.entered = True
                if line in self.victims:
                    self.preempt(frame.f_locals)
                if found := self.lines.get(line):
                    self.branch(*found, frame.f_locals)
            elif event == "return":
                names = frame.f_locals
                self.budget_left, self.preempted = names["token_budget"], bool(names["preempted_reqs"])
            return local

        coordinator = scheduler.kv_cache_manager.coordinator
        original = coordinator.get_num_blocks_to_allocate

        def counting(*args, **kwargs):
            count = original(*args, **kwargs)
            self.counts[kwargs.get("request_id", args[0] if args else None)] = count
            return count

        coordinator.get_num_blocks_to_allocate = counting
        previous = sys.gettrace()
        sys.settrace(lambda frame, event, arg: local if frame.f_code is self.code else None)
        try:
            yield self
        finally:
            sys.settrace(previous)
            del coordinator.get_num_blocks_to_allocate

    def preempt(self, names) -> None:
        victim, request = names["preempted_req"], names["request"]
        by_priority = names["self"].policy.value == "priority" and victim is not request
        manager = names["self"].kv_cache_manager
        table = manager.coordinator.single_type_managers[0].req_to_blocks
        free, held = manager.block_pool.get_num_free_blocks(), len(table[victim.request_id])
        self.preemptions[victim.request_id] = (request.request_id, by_priority, free, held)

    def branch(self, in_waiting, kind, meaning, headed, names) -> None:
        request = names.get("request")
        if headed:
            self.head = request
        if meaning is INNER:
            return
        if meaning is BY_STATUS:
            meaning = STATUS[request.status.name]
        if meaning is EMPTY_OR_INPUT:
            meaning = TOKENS if names["request_queue"] else None
        if meaning is ALLOCATION:
            meaning = BLOCKS
            watermark = getattr(names["self"].kv_cache_manager, "watermark_blocks", 0) if names["self"].running else 0
            self.need = self.counts[request.request_id] + watermark
        reason = meaning if isinstance(meaning, tuple) else (meaning, 0) if meaning else None
        if kind == "continue":
            self.own[request.request_id] = reason
        elif in_waiting:
            self.waiting_end = reason
        else:
            self.running_end = reason

    def reasons(self, scheduler, output, waiting) -> dict:
        """Request id: (reason, code), of everybody whom this step left without tokens. `waiting`: those in the queues."""
        all_paused = scheduler._pause_state.name == "PAUSED_ALL"
        empty = (PAUSED, 0) if scheduler._pause_state.name != "UNPAUSED" else (OTHER, 1)
        running_end = self.running_end or ((PAUSED, 0) if all_paused else (TOKENS, 0))
        if not self.entered:
            waiting_end = (PREEMPTION, 0) if self.preempted else (PAUSED, 0)
        else:
            waiting_end = self.waiting_end or ((TOKENS, 0) if self.budget_left <= 0 else empty)
        reasons = {}
        for queue, end in (scheduler.running, running_end), (waiting, waiting_end):
            for request in queue:
                id, reason = request.request_id, end
                if id in output.num_scheduled_tokens:
                    continue
                if request.status.name == "WAITING_FOR_STREAMING_REQ":
                    reason = STATUS[request.status.name]
                elif id in self.own:
                    reason = self.own[id]
                elif self.preemptions.get(id, (None, False))[1]:
                    reason = (PRIORITY, 0)
                elif end == (BLOCKS, 0) and request is not self.head:
                    reason = (HEAD_OF_LINE, 0)
                reasons[id] = reason
        for id in scheduler.requests:
            if id not in output.num_scheduled_tokens and id not in reasons:
                reasons[id] = (OTHER, 5)  # in no queue
        return reasons


def one(found):
    assert len(found) == 1, f"{len(found)} loops where schedule() has one"
    return found[0]
