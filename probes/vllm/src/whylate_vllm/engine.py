"""The hooks of the engine process: its scheduler's methods, its block pool, and the thread on which requests arrive."""

import functools
import sys
import weakref

from . import hooks, identity, native, wire
from .hooks import argument, around, now
from .ring import Ring
from .scheduler import ADMINISTRATIVE, MEMORY, Arrival, Recorder, chain
from .settings import rank

INPUT_RING = 4 << 20


def recorder(scheduler) -> Recorder:
    found = getattr(scheduler, "_whylate", None)
    if found is None:
        found = scheduler._whylate = Recorder(scheduler, forgetting(scheduler))
        scheduler.kv_cache_manager._whylate = scheduler.kv_cache_manager.block_pool._whylate = found
    return found


def forgetting(holder):
    reference = weakref.ref(holder)

    def forget() -> None:
        if (alive := reference()) is not None:
            vars(alive).pop("_whylate", None)

    return forget


def add_request(scheduler, entered, result, args, kwargs):
    recorder(scheduler).queued(argument(args, kwargs, 0, "request"), entered)


def schedule(scheduler, entered, output, args, kwargs):
    recorder(scheduler).scheduled(entered, output, bool(argument(args, kwargs, 0, "throttle_prefills")))


def visit(scheduler, entered, ready, args, kwargs):
    recorder(scheduler).inside().visits.append((argument(args, kwargs, 0, "request"), ready))


def choose_queue(scheduler, entered, queue, args, kwargs):
    """Before 0.32: the first of this queue is looked at next."""
    recorder(scheduler).inside().visits.append((queue.peek_request(), True))


def promote(scheduler, entered, ready, args, kwargs):
    """Before 0.32: its status does not let it through yet."""
    if not ready:
        recorder(scheduler).inside().visits[-1] = (argument(args, kwargs, 0, "request"), False)


def look_up(scheduler, entered, result, args, kwargs):
    looked_up(recorder(scheduler), result, argument(args, kwargs, 0, "request"))


def look_up_manager(manager, entered, result, args, kwargs):
    """Before 0.30 nothing of the scheduler's own stands around it."""
    if found := getattr(manager, "_whylate", None):
        looked_up(found, result, argument(args, kwargs, 0, "request"))


def looked_up(found, result, request):
    groups = result[0].blocks
    found.inside().hit = (request, groups[0] if groups else (), result[1])


def before_session(scheduler, args, kwargs):
    return argument(args, kwargs, 0, "session").num_output_tokens


def continue_session(scheduler, emitted, result, args, kwargs):
    """Its prompt has grown and its frontier has moved, though it may be a member of consecutive iterations."""
    recorder(scheduler).prolonged(argument(args, kwargs, 0, "session"), emitted)


def preempt(scheduler, args, kwargs):
    """The preemptor is not passed: it is the request for which the caller, `schedule()`, is allocating."""
    frame = sys._getframe(2)
    while frame and frame.f_code.co_name not in ("schedule", "reset_prefix_cache"):
        frame = frame.f_back
    memory = frame is not None and frame.f_code.co_name == "schedule"
    names = frame.f_locals if memory else {}
    cause = MEMORY if memory else ADMINISTRATIVE
    request, looked_at = argument(args, kwargs, 0, "request"), names.get("req_index", 0)
    recorder(scheduler).preempting(request, names.get("request"), cause, looked_at)


def before_update(scheduler, args, kwargs):
    found = recorder(scheduler)
    return found, *found.updating(argument(args, kwargs, 1, "model_runner_output"))


def update(scheduler, state, results, args, kwargs):
    found, entered, sampled = state
    output = argument(args, kwargs, 0, "scheduler_output")
    found.done(entered, sampled, output, argument(args, kwargs, 1, "model_runner_output"), results)


hooks.STEADY.update({(now, schedule): native.SCHEDULE, (before_update, update): native.UPDATE})


def free_request(scheduler, entered, result, args, kwargs):
    recorder(scheduler).finished(argument(args, kwargs, 0, "request"), entered)


def reset_prefix_cache(scheduler, entered, reset, args, kwargs):
    if reset:
        recorder(scheduler).ring.write(wire.CACHE, wire.RESET, entered, wire.cache(0, 0, 0, b""))


def cache_full_blocks(pool, entered, result, args, kwargs):
    found = getattr(pool, "_whylate", None)
    if not found or not found.hashing or argument(args, kwargs, 5, "kv_cache_group_id"):
        return
    first, end = argument(args, kwargs, 2, "num_cached_blocks"), argument(args, kwargs, 3, "num_full_blocks")
    if first < end:
        hashed = argument(args, kwargs, 4, "block_size") // pool.hash_block_size
        found.fills.append((entered, argument(args, kwargs, 0, "request"), first * hashed, (end - first) * hashed))


def free(manager, args, kwargs):
    if found := getattr(manager, "_whylate", None):
        found.freed(argument(args, kwargs, 0, "request"))


def hook_evict(cls) -> None:
    """Called for every block that is handed out: only one that was still in the cache may cost anything."""
    original = getattr(cls, "_maybe_evict_cached_block", None)
    guard = hooks.claim(cls, "_maybe_evict_cached_block", original)
    if guard is None:
        return

    @functools.wraps(original)
    def _maybe_evict_cached_block(self, *args, **kwargs):
        block = argument(args, kwargs, 0, "block")
        block_hash = getattr(block, "block_hash", None)  # none afterwards
        evicted = original(self, *args, **kwargs)
        if evicted and guard.on:
            try:
                found = getattr(self, "_whylate", None)
                if found and found.hashing:
                    found.evicted.append((found.users[block.block_id], block_hash))
            except Exception as error:
                guard.blow(error)
        return evicted

    hooks.replace(cls, "_maybe_evict_cached_block", _maybe_evict_cached_block, guard)


def preprocess_add_request(core, entered, result, args, kwargs):
    """On the engine's input thread; the scheduler's thread finds the arrival on the request."""
    new, request = argument(args, kwargs, 0, "request"), result[0]
    ring = getattr(core, "_whylate", None)
    if ring is None:
        ring = core._whylate = Ring(
            "engine",
            "input",
            INPUT_RING,
            rank=rank(core.vllm_config),
            abandoned=forgetting(core),
            capabilities={"arrived": True},
        )
    external = new.external_req_id or ""
    ring.write(wire.ARRIVED, 0, entered, wire.arrived(new.arrival_time, new.request_id, external))
    links = chain(request.block_hashes) if identity.hashes_wanted() else b""
    request._whylate = Arrival(entered, external, links)


def hook_scheduler(module) -> None:
    cls = module.Scheduler
    around(cls, "add_request", after=add_request)
    around(cls, "schedule", after=schedule)
    if hasattr(cls, "_select_waiting_queue_for_scheduling"):
        around(cls, "_select_waiting_queue_for_scheduling", after=choose_queue)
        around(cls, "_try_promote_blocked_waiting_request", after=promote)
    else:
        around(cls, "_handle_blocked_waiting_request", after=visit)
    if hasattr(cls, "_get_local_prefix_cache_hit"):
        around(cls, "_get_local_prefix_cache_hit", after=look_up)
    else:
        around(module.KVCacheManager, "get_computed_blocks", after=look_up_manager)
    around(cls, "_preempt_request", before=preempt)
    around(cls, "_update_request_as_session", before=before_session, after=continue_session)
    around(cls, "update_from_output", before=before_update, after=update)
    around(cls, "_free_request", after=free_request)
    around(cls, "reset_prefix_cache", after=reset_prefix_cache)


def hook_cache_manager(module) -> None:
    around(module.KVCacheManager, "free", before=free)
    if hasattr(module.KVCacheManager, "pop_blocks_for_free"):  # since 0.24
        around(module.KVCacheManager, "pop_blocks_for_free", before=free)


def hook_block_pool(module) -> None:
    around(module.BlockPool, "cache_full_blocks", after=cache_full_blocks)
    hook_evict(module.BlockPool)


def hook_engine_core(module) -> None:
    around(module.EngineCore, "preprocess_add_request", after=preprocess_add_request)
