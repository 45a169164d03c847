"""Why a live sequence was not scheduled: vLLM 0.32's `schedule()`, read backwards, in the order of its own code."""

from collections import namedtuple

SEQUENCES, TOKENS, BLOCKS, HEAD_OF_LINE, PREEMPTION = 1, 2, 3, 4, 5
GRAMMAR, ADAPTER, REMOTE, STALE, IN_FLIGHT, CADENCE, PAUSED, OTHER = 7, 8, 9, 11, 12, 13, 14, 15

# Codes of `other`.
STOPPED, PASSED_OVER, INPUT, DEFERRED = 1, 2, 3, 4

Verdict = namedtuple("Verdict", "stop code head need skips")
NOBODY = Verdict(0, 0, None, 0, ())

WAITED_FOR = {
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": (GRAMMAR, 0),
    "WAITING_FOR_REMOTE_KVS": (REMOTE, 0),
    "WAITING_FOR_STREAMING_REQ": (OTHER, INPUT),
}


def why(scheduler, output, visits, hit, preempted: bool, throttled: bool) -> Verdict:
    """`visits`: the waiting requests that this step looked at, in order, each with whether its status let it through.
    `hit`: the last of them whose prefix was looked up in the cache, with the blocks found."""
    tokens = output.num_scheduled_tokens
    skips, head = [], None

    if len(tokens) < len(scheduler.running):
        ended = preempted or room(scheduler, output) <= 0 or paused(scheduler) == "PAUSED_ALL"
        for request in scheduler.running:
            if request.request_id not in tokens and (reason := passed_over(scheduler, request, ended, throttled)):
                skips.append((request, *reason))

    for place, (request, ready) in enumerate(visits, 1):
        if request.request_id in tokens:
            continue
        reason = set_aside(scheduler, request, ready, last=place == len(visits), looked_up=request is hit[0])
        if reason:
            skips.append((request, *reason))
        else:
            head = request

    if scheduler.num_waiting_for_streaming_input:
        visited = {request.request_id for request, _ in visits}
        for request in scheduler.kv_holding_waiting:
            if request.status.name == "WAITING_FOR_STREAMING_REQ" and request.request_id not in visited:
                skips.append((request, OTHER, INPUT))

    left = len(scheduler.running) + count_waiting(scheduler) - len(tokens) - len(skips)
    if left <= 0:
        return Verdict(0, 0, None, 0, skips)
    stop, code, need = stopped_by(scheduler, output, head, hit, preempted, throttled)
    return Verdict(stop, code, head, need, skips)


def count_waiting(scheduler) -> int:
    return len(scheduler.waiting) + len(scheduler.kv_holding_waiting)


def passed_over(scheduler, request, ended: bool, throttled: bool):
    """A running request without tokens: its own reason, or None if it shares the one that ended the step."""
    pending = request.num_output_placeholders
    computed = request.num_computed_tokens
    if pending and computed + 2 - pending >= request.num_prompt_tokens + request.max_tokens:
        return IN_FLIGHT, 0
    if scheduler.current_step < request.next_decode_eligible_step or throttled and request.is_prefill_chunk:
        return CADENCE, 0
    if computed + scheduler.num_sampled_tokens_per_step >= scheduler.max_model_len:
        return IN_FLIGHT, 0
    return None if ended else (OTHER, PASSED_OVER)


def set_aside(scheduler, request, ready: bool, last: bool, looked_up: bool):
    """A waiting request that the step looked at: why it was put aside, or None if it was the one that ended the loop."""
    if not ready or request.status.name == "WAITING_FOR_REMOTE_KVS":
        return WAITED_FOR.get(request.status.name, (OTHER, DEFERRED))
    if request.num_stale_output_tokens and not request.drop_stale_output:
        return STALE, 0
    if not looked_up and request.num_computed_tokens == 0:
        return ADAPTER, 0
    return None if last else (OTHER, DEFERRED)


def stopped_by(scheduler, output, head, hit, preempted: bool, throttled: bool) -> tuple[int, int, int]:
    """What ended admission: reason, code, and the blocks that the head needs."""
    if head is not None:
        local, blocks = (hit[2], hit[1]) if hit[0] is head else (head.num_computed_tokens, ())
        if not scheduler.scheduler_config.enable_chunked_prefill and head.num_tokens - local > room(scheduler, output):
            return TOKENS, 0, 0
        need = blocks_needed(scheduler, head, local, blocks, output)
        if simple(scheduler, head, throttled) or need > scheduler.kv_cache_manager.block_pool.get_num_free_blocks():
            return BLOCKS, 0, need
        return (CADENCE, 0, 0) if throttled else (OTHER, STOPPED, 0)
    if preempted:
        return PREEMPTION, 0, 0
    if paused(scheduler) == "PAUSED_ALL":
        return PAUSED, 0, 0
    if room(scheduler, output) <= 0:
        return TOKENS, 0, 0
    if paused(scheduler) == "PAUSED_NEW" and not scheduler.kv_holding_waiting:
        return PAUSED, 0, 0
    if len(scheduler.running) + scheduler.num_waiting_for_streaming_input >= scheduler.max_num_active_reqs:
        return SEQUENCES, 0, 0
    return OTHER, STOPPED, 0


def paused(scheduler) -> str:
    return scheduler._pause_state.name


def room(scheduler, output) -> int:
    """Tokens that one more sequence could still have been given in this step."""
    speculative = scheduler.vllm_config.speculative_config
    slots = speculative.max_num_new_slots_for_drafting if speculative else 0
    spent = output.total_num_scheduled_tokens
    inputs = scheduler.scheduler_config.max_num_batched_tokens - spent - slots * (len(output.num_scheduled_tokens) + 1)
    return min(scheduler.max_num_scheduled_tokens - spent, inputs)


def simple(scheduler, head, throttled: bool) -> bool:
    """Nothing but a lack of blocks can have refused this head."""
    return not (
        throttled
        or scheduler.connector
        or scheduler.ec_connector
        or scheduler.need_mamba_block_aligned_split
        or scheduler.num_spec_tokens
        or scheduler.num_prefill_lookahead
        or head.has_encoder_inputs
    )


def blocks_needed(scheduler, head, local: int, blocks, output) -> int:
    """As `allocate_slots` counts them; 0 where several groups of caches make it vague."""
    manager = scheduler.kv_cache_manager
    groups = manager.coordinator.single_type_managers
    if len(groups) != 1:
        return 0
    size, own = groups[0].block_size, len(groups[0].req_to_blocks.get(head.request_id, ()))
    tokens = head.num_tokens
    if not scheduler.scheduler_reserve_full_isl:
        threshold = scheduler.scheduler_config.long_prefill_token_threshold or tokens
        tokens = local + min(tokens - local, room(scheduler, output), threshold) + scheduler.num_lookahead_tokens
    tokens = min(tokens, scheduler.max_model_len)
    idle = sum(1 for block in blocks[:4096] if not block.ref_cnt)
    reserve = manager.watermark_blocks if scheduler.running else 0
    return max(-(-tokens // size) - len(blocks) - own, 0) + idle + reserve


def holders(scheduler, largest: int = 32) -> list:
    """Who holds the pool: (request, blocks, blocks with each shared one counted once per reference)."""
    tables = scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks
    held, left = [], 4096
    for request in (*scheduler.running, *scheduler.kv_holding_waiting):
        blocks = tables.get(request.request_id, ())
        weight = float(len(blocks))
        for block in blocks[:left]:
            left -= 1
            if block.ref_cnt <= 1:
                break
            weight -= 1 - 1 / block.ref_cnt
        held.append((request, len(blocks), weight))
    held.sort(key=lambda entry: entry[1], reverse=True)
    return held[:largest]
