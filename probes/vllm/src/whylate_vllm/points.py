"""Which parameters of vLLM's methods the probe reads, and where they stand."""

import inspect

# By position, without `self`; None is one that is not read. A method that is not here is hooked whatever its parameters are.
READS = {
    "Scheduler.schedule": ("throttle_prefills",),
    "Scheduler.add_request": ("request",),
    "Scheduler._handle_blocked_waiting_request": ("request",),
    "Scheduler._get_local_prefix_cache_hit": ("request",),
    "Scheduler._preempt_request": ("request",),
    "Scheduler._update_request_as_session": ("session",),
    "Scheduler.update_from_output": ("scheduler_output", "model_runner_output"),
    "Scheduler._free_request": ("request",),
    "BlockPool.cache_full_blocks": (
        "request", None, "num_cached_blocks", "num_full_blocks", "block_size", "kv_cache_group_id",
    ),
    "BlockPool._maybe_evict_cached_block": ("block",),
    "KVCacheManager.get_computed_blocks": ("request",),
    "KVCacheManager.free": ("request",),
    "KVCacheManager.pop_blocks_for_free": ("request",),
    "Worker.execute_model": ("scheduler_output",),
    "EngineCore.preprocess_add_request": ("request",),
    "OutputProcessor.add_request": ("request", None, "parent_req", "request_index"),
    "OutputProcessor.process_outputs": ("engine_core_outputs", "engine_core_timestamp"),
    "OutputProcessor._finish_request": ("req_state",),
    "RequestState.make_request_output": (None, None, "finish_reason", "stop_reason"),
}  # fmt: skip


def differs(point: str, method) -> str:
    """How the method's parameters are not those that the probe reads, or nothing. One that an older vLLM does not have yet is
    no difference: the hook finds it absent."""
    names = parameters(method)[1:]
    for place, (read, name) in enumerate(zip(READS.get(point, ()), names), 1):
        if read and name != read:
            return f"parameter {place} is {name!r}, where the probe reads {read!r}"
    return ""


def parameters(method) -> list[str]:
    """Their names, as far as they may be given by position."""
    try:
        found = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # no Python function
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
