"""Where vLLM's versions differ in what the probe reads of a scheduler. Nothing else knows it."""

from operator import attrgetter


def depth(config) -> int:
    """Decisions that may be open at once; before 0.24 the executor knew it, by the same rule."""
    found = getattr(config, "max_concurrent_batches", None)
    if found is not None:
        return found
    stages = config.parallel_config.pipeline_parallel_size
    return 2 if stages <= 1 and config.scheduler_config.async_scheduling else stages


def step(scheduler, otherwise: int) -> int:
    """The engine's own index; 0.20 has none."""
    return getattr(scheduler, "current_step", otherwise)


def readings(scheduler):
    """A function that reads at once what changes from step to step, of such a scheduler: its list `running`, which it replaces
    now and then, and its own index of the step, 0 if it has none. (Its queues of waiting requests and its limits stay.)"""
    if hasattr(scheduler, "current_step"):
        return attrgetter("running", "current_step")
    return lambda scheduler: (scheduler.running, 0)


def aside(scheduler):
    """The waiting requests beside `waiting`: since 0.32 those that hold blocks, before that all that a step had put aside."""
    return scheduler.kv_holding_waiting if admits_holders(scheduler) else scheduler.skipped_waiting


def admits_holders(scheduler) -> bool:
    """Since 0.32 a scheduler that is paused for new requests still admits those that hold blocks."""
    return hasattr(scheduler, "kv_holding_waiting")


def most_running(scheduler) -> int:
    """Since 0.32 fewer may be admitted than the runner has places for."""
    most = getattr(scheduler, "max_num_active_reqs", None)
    return scheduler.max_num_running_reqs if most is None else most


def paused_sessions(scheduler) -> int:
    """Streaming sessions between two chunks that count as running; since 0.30."""
    return scheduler.num_waiting_for_streaming_input if limits_input(scheduler) else 0


def limits_input(scheduler) -> bool:
    """Since 0.30 the places of drafts count against the batch, and an admission may be padded with them."""
    return hasattr(scheduler, "num_prefill_lookahead")


def sampled_per_step(scheduler) -> int:
    return getattr(scheduler, "num_sampled_tokens_per_step", 1)


def not_before(request) -> int:
    """The first step in which it may decode again; since 0.24."""
    return getattr(request, "next_decode_eligible_step", 0)


def awaits_output(request) -> bool:
    """What it computed before its preemption is still to be delivered; since 0.30."""
    return bool(getattr(request, "num_stale_output_tokens", 0)) and not request.drop_stale_output


def lookahead(scheduler, request) -> int:
    """Tokens beyond its own for which a request needs blocks at its admission; before 0.24 only one that had computed some."""
    if request.num_computed_tokens == 0 and not hasattr(scheduler, "num_sampled_tokens_per_step"):
        return 0
    return scheduler.num_lookahead_tokens


def longest_chunk(scheduler, live: int) -> int:
    """Prompt tokens that one request may be given in a step, 0 for no limit of its own; since 0.32 it depends on who else is
    there."""
    limit = scheduler.scheduler_config.long_prefill_token_threshold
    adapts = getattr(scheduler, "adaptive_long_prefill_threshold", None)
    if adapts is None or not limit:
        return limit
    if live <= 1:
        return 0
    return max(limit, scheduler.scheduler_config.max_num_batched_tokens // live) if adapts else limit
