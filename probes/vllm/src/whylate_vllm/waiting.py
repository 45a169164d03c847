"""Why a live sequence was not scheduled: vLLM's `schedule()`, read backwards, in the order of its own code."""

from collections import namedtuple

from . import versions

SEQUENCES, TOKENS, BLOCKS, HEAD_OF_LINE, PREEMPTION, PRIORITY = 1, 2, 3, 4, 5, 6
GRAMMAR, ADAPTER, REMOTE, STALE, IN_FLIGHT, CADENCE, PAUSED, OTHER = 7, 8, 9, 11, 12, 13, 14, 15

# Codes of `other`.
STOPPED, PASSED_OVER, INPUT, DEFERRED, NOWHERE = 1, 2, 3, 4, 5

Verdict = namedtuple("Verdict", "stop code head need skips")
NOBODY = Verdict(0, 0, None, 0, ())

WAITED_FOR = {
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": (GRAMMAR, 0),
    "WAITING_FOR_REMOTE_KVS": (REMOTE, 0),
    "WAITING_FOR_STREAMING_REQ": (OTHER, INPUT),
}


class Seen:
    """What the hooks saw inside of one `schedule()`."""

    __slots__ = ("step", "visits", "hit", "victims", "reached")

    def __init__(self, step: int):
        self.step = step
        self.visits = []  # waiting requests that it looked at, in order, each with whether its status let it through
        self.hit = (None, (), 0)  # the last whose prefix was looked up in the cache, the blocks found, their tokens
        self.victims = []  # whom it preempted for blocks, each with whether one of higher priority took its place
        self.reached = None  # how many of those still running it had looked at when one had to preempt itself


def why(scheduler, output, seen: Seen, throttled: bool, step: int, astray=()) -> Verdict:
    """`astray`: live requests that the scheduler has in none of its queues."""
    tokens, visits = output.num_scheduled_tokens, seen.visits
    skips, head = [(request, PRIORITY, 0) for request, outranked in seen.victims if outranked], None

    for place, (request, ready) in enumerate(visits, 1):
        if request.request_id in tokens:
            continue
        reason = set_aside(scheduler, tokens, request, ready, last=place == len(visits))
        if reason:
            skips.append((request, *reason))
        else:
            head = request

    if scheduler.num_waiting_for_streaming_input:
        visited = {request.request_id for request, _ in visits}
        for request in versions.aside(scheduler):
            if request.status.name == "WAITING_FOR_STREAMING_REQ" and request.request_id not in visited:
                skips.append((request, OTHER, INPUT))

    left = count_waiting(scheduler) > len(skips)
    stop, code, need = stopped_by(scheduler, output, head, seen, throttled) if left else (0, 0, 0)
    if len(tokens) < len(scheduler.running):
        ended, reached = run_ended_by(scheduler, output, seen)
        for place, request in enumerate(scheduler.running):
            if request.request_id in tokens:
                continue
            reason = passed_over(scheduler, request, throttled, step) if place < reached else (ended, 0)
            if not left and place >= reached:
                stop, code = reason
            if reason != (stop, code) or stop == BLOCKS:
                skips.append((request, *reason))
    skips += [(request, OTHER, NOWHERE) for request in astray]
    return Verdict(stop, code, head, need, skips)


def count_waiting(scheduler) -> int:
    return len(scheduler.waiting) + len(versions.aside(scheduler))


def run_ended_by(scheduler, output, seen: Seen) -> tuple[int, int]:
    """Why the running ones were not looked at any further, and how many of them had been."""
    tokens, running = output.num_scheduled_tokens, scheduler.running
    if paused(scheduler) == "PAUSED_ALL":
        return PAUSED, 0
    if room(scheduler, output) <= 0:
        return TOKENS, max((place for place, request in enumerate(running, 1) if request.request_id in tokens), default=0)
    if seen.reached is not None:
        return PREEMPTION, seen.reached
    return 0, len(running)


def passed_over(scheduler, request, throttled: bool, step: int) -> tuple[int, int]:
    """A running request without tokens, although it was looked at."""
    pending, computed = request.num_output_placeholders, request.num_computed_tokens
    if pending and computed + 2 - pending >= request.num_prompt_tokens + request.max_tokens:
        return IN_FLIGHT, 0
    if step < versions.not_before(request) or throttled and request.is_prefill_chunk:
        return CADENCE, 0
    if computed + versions.sampled_per_step(scheduler) >= scheduler.max_model_len:
        return IN_FLIGHT, 0
    if computed >= request.num_tokens_with_spec + pending:
        return IN_FLIGHT, 0
    return OTHER, PASSED_OVER


def set_aside(scheduler, tokens, request, ready: bool, last: bool):
    """A waiting request that the step looked at: why it was put aside, or None if it was the one that ended the loop."""
    if not ready or request.status.name == "WAITING_FOR_REMOTE_KVS":
        return WAITED_FOR.get(request.status.name, (OTHER, DEFERRED))
    if versions.awaits_output(request):
        return STALE, 0
    if scheduler.lora_config and request.lora_request and (not last or adapters_full(scheduler, tokens, request)):
        return ADAPTER, 0
    return None if last else (OTHER, DEFERRED)


def adapters_full(scheduler, tokens, request) -> bool:
    adapters = {adapter(scheduler.requests[id]) for id in tokens} - {0}
    return len(adapters) == scheduler.lora_config.max_loras and adapter(request) not in adapters


def adapter(request) -> int:
    return request.lora_request.lora_int_id if request.lora_request else 0


def stopped_by(scheduler, output, head, seen: Seen, throttled: bool) -> tuple[int, int, int]:
    """What ended admission: reason, code, and the blocks that the head needs."""
    if head is not None:
        return refused(scheduler, output, head, seen, throttled)
    if seen.victims:
        return PREEMPTION, 0, 0
    state = paused(scheduler)
    if state == "PAUSED_ALL" or state == "PAUSED_NEW" and not versions.admits_holders(scheduler):
        return PAUSED, 0, 0
    if output.total_num_scheduled_tokens >= scheduler.max_num_scheduled_tokens:
        return TOKENS, 0, 0
    visited = {request.request_id for request, _ in seen.visits}
    if state == "PAUSED_NEW" and all(request.request_id in visited for request in versions.aside(scheduler)):
        return PAUSED, 0, 0
    if room(scheduler, output) <= 0:
        return TOKENS, 0, 0
    if len(scheduler.running) + versions.paused_sessions(scheduler) >= versions.most_running(scheduler):
        return SEQUENCES, 0, 0
    return OTHER, STOPPED, 0


def refused(scheduler, output, head, seen: Seen, throttled: bool) -> tuple[int, int, int]:
    """Why the head of the line was not admitted, though its status let it through."""
    local, blocks = (seen.hit[2], seen.hit[1]) if seen.hit[0] is head else (head.num_computed_tokens, ())
    left, new = room(scheduler, output), head.num_tokens - local
    if new == 1 and left < 1 + scheduler.num_spec_tokens and padded(scheduler, output, local):
        return TOKENS, 0, 0
    limit = versions.longest_chunk(scheduler, len(scheduler.running) + count_waiting(scheduler))
    chunk = min(new, limit) if limit else new
    if not scheduler.scheduler_config.enable_chunked_prefill and chunk > left:
        return TOKENS, 0, 0
    need = blocks_needed(scheduler, head, local, blocks, local + min(chunk, left))
    if simple(scheduler, head, throttled) or need > scheduler.kv_cache_manager.block_pool.get_num_free_blocks():
        return BLOCKS, 0, need
    return (CADENCE, 0, 0) if throttled else (OTHER, STOPPED, 0)


def paused(scheduler) -> str:
    return scheduler._pause_state.name


def room(scheduler, output) -> int:
    """Tokens that one more sequence could still have been given in this step."""
    spent = output.total_num_scheduled_tokens
    left = scheduler.max_num_scheduled_tokens - spent
    if not versions.limits_input(scheduler):
        return left
    speculative = scheduler.vllm_config.speculative_config
    slots = speculative.max_num_new_slots_for_drafting if speculative else 0
    return min(left, scheduler.scheduler_config.max_num_batched_tokens - spent - slots * (len(output.num_scheduled_tokens) + 1))


def padded(scheduler, output, local: int) -> bool:
    """An admission of one token is given places for drafts, so that the batch stays uniform; or else it waits."""
    if not versions.limits_input(scheduler) or scheduler.num_spec_tokens == 0 or scheduler.dynamic_sd_lookup is not None:
        return False
    sampled, requests = versions.sampled_per_step(scheduler), scheduler.requests
    if not sampled or local + 1 + scheduler.num_spec_tokens + sampled > scheduler.max_model_len:
        return False
    admitted = {new.req_id for new in output.scheduled_new_reqs} | set(output.scheduled_cached_reqs.resumed_req_ids)
    ran = [id for id in output.num_scheduled_tokens if id not in admitted]
    prefill = any(
        requests[id].num_computed_tokens - output.num_scheduled_tokens[id]
        < max(requests[id].num_prompt_tokens, requests[id].num_tokens - 1)
        for id in ran
    )
    return not prefill and bool(ran or local)


def simple(scheduler, head, throttled: bool) -> bool:
    """Nothing but a lack of blocks can have refused this head."""
    return not (
        throttled
        or scheduler.connector
        or scheduler.ec_connector
        or scheduler.need_mamba_block_aligned_split
        or getattr(scheduler, "num_prefill_lookahead", 0)
        or head.has_encoder_inputs
    )


def blocks_needed(scheduler, head, local: int, blocks, tokens: int) -> int:
    """As the engine counts them: for all that is known of the head where that must fit, else for its next `tokens`; 0 where
    several groups of caches make it vague."""
    manager = scheduler.kv_cache_manager
    groups = manager.coordinator.single_type_managers
    if len(groups) != 1:
        return 0
    size, own = groups[0].block_size, len(groups[0].req_to_blocks.get(head.request_id, ()))
    idle = sum(1 for block in blocks[:4096] if not block.ref_cnt)
    reserve = getattr(manager, "watermark_blocks", 0) if scheduler.running else 0

    def count(tokens: int) -> int:
        return max(-(-min(tokens, scheduler.max_model_len) // size) - len(blocks) - own, 0) + idle + reserve

    if scheduler.scheduler_reserve_full_isl:
        need = count(head.num_tokens)
        if need > manager.block_pool.get_num_free_blocks():
            return need
    return count(tokens + versions.lookahead(scheduler, head))


def holders(scheduler, largest: int = 32) -> list:
    """Who holds the pool: (request, blocks, blocks with each shared one counted once per reference)."""
    tables = scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks
    held, left = [], 4096
    for request in (*scheduler.running, *versions.aside(scheduler)):
        blocks = tables.get(request.request_id)
        if not blocks:
            continue
        weight = float(len(blocks))
        for block in blocks[:left]:
            left -= 1
            if block.ref_cnt <= 1:
                break
            weight -= 1 - 1 / block.ref_cnt
        held.append((request, len(blocks), weight))
    held.sort(key=lambda entry: entry[1], reverse=True)
    return held[:largest]
