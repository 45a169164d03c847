"""What one scheduler decided, and what came of it."""

import os
import re
from array import array
from collections import deque, namedtuple
from time import monotonic_ns

from . import hooks, identity, native, versions, wire
from .ring import COMPLETED, COMPLETED_AT, LAUNCHED, LAUNCHED_AT, LOAD, Ring
from .settings import capabilities, rank, settings
from .waiting import BLOCKS, NOBODY, Seen, holders, why

RING = 15 << 20
FULL_EVERY, TURNS = 64, 16  # a live sequence is restated every 64 × 16 iterations
PENDING_MAX = 64
AT_MOST = 4096  # a hook that has disabled itself must not let the others' notes grow
LOOKS = EVICTIONS = 1 << 16
TOGETHER, AT_ONCE = 16, 256  # iterations, or blocks, whose evictions share their frames
NOTHING = Seen(-1)

NEW, RESUMED, CONTINUING, PROLONGED = 1, 2, 3, 4
MEMORY, ADMINISTRATIVE = 1, 2
PENALTIES, GRAMMAR, ADAPTER, MULTIMODAL, SESSION = 1, 2, 4, 8, 16
WHOLE_VOCABULARY = 32767
ERROR = 4
OF_HASHES = "cache_filled", "cache_evicted"  # not seen without them
REASONS = {
    "FINISHED_STOPPED": 1,
    "FINISHED_LENGTH_CAPPED": 2,
    "FINISHED_IGNORED": 2,
    "FINISHED_ABORTED": 3,
    "FINISHED_ERROR": ERROR,
    "FINISHED_REPETITION": 5,
}

Arrival = namedtuple("Arrival", "at external chain")
UNSEEN = Arrival(0, "", None)


class Sequence:
    """What this ring says of one request."""

    __slots__ = ("handle", "mark", "time", "queued", "hashed", "cached", "kind", "until", "emitted")

    def __init__(self, handle: int, time: int, queued: bytes):
        self.handle, self.mark, self.time, self.queued = handle, wire.mark(handle), time, queued
        self.hashed = self.cached = self.until = 0
        self.emitted = 0  # in the earlier turns of a streaming session
        self.kind = NEW  # of its next join


class Recorder(native.State):
    """Knows what the ring's reader knows of one scheduler, and writes only what differs from it. In steady decode the native
    helper, if there is one, does `scheduled` and `done` by itself, on these same attributes."""

    def __init__(self, scheduler, abandoned=None):
        config = scheduler.vllm_config
        cache = scheduler.cache_config
        self.scheduler = scheduler
        self.read = versions.readings(scheduler)
        self.waiting, self.aside = scheduler.waiting, versions.aside(scheduler)
        self.token_budget, self.seq_budget = scheduler.max_num_scheduled_tokens, versions.most_running(scheduler)
        self.count_free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks
        self.priorities = getattr(scheduler.policy, "value", scheduler.policy) == "priority"
        self.hashing = bool(cache.enable_prefix_caching) and identity.hashes_wanted()
        self.speculative = bool(scheduler.num_spec_tokens) or versions.sampled_per_step(scheduler) != 1
        self.handles = self.iteration = self.digest = self.stop = self.spent = 0
        self.live: dict[str, Sequence] = {}
        self.gone: dict[str, Sequence] = {}  # finished, but still in an iteration under way
        self.members: dict[str, Sequence] = {}  # of the last iteration
        self.tokens: dict[str, int] = {}  # of the last iteration
        self.order: list[str] | None = None  # its members, if each had one token
        self.prefilling: dict = {}  # members whose last chunk did not end their prompt
        self.pending: dict[int, tuple[str, ...]] = {}  # iteration under way: its members that will emit nothing
        self.seen = NOTHING  # inside of the step under way
        self.preempted, self.fills = deque(maxlen=AT_MOST), deque(maxlen=AT_MOST)
        self.evicted = deque(maxlen=EVICTIONS)  # last user's handle, hash
        self.users = array("I", bytes(4 * scheduler.kv_cache_manager.block_pool.num_gpu_blocks)) if self.hashing else None
        self.finishes: list[bytes] | None = None  # a list while an update is under way
        self.irregular = False
        self.skips = b""  # in force
        self.ring = Ring(
            "engine",
            "scheduler",
            RING,
            rank=rank(config),
            abandoned=abandoned,
            depth=versions.depth(config),
            settings=settings(scheduler),
            capabilities=capabilities(hashes=self.hashing, **{} if self.hashing else dict.fromkeys(OF_HASHES, False)),
            hashes={
                "on": self.hashing,
                "algorithm": str(cache.prefix_caching_hash_algo),
                "stable": "xx" not in str(cache.prefix_caching_hash_algo) or "PYTHONHASHSEED" in os.environ,
            },
        )
        for name in hooks.missing:
            self.ring.notice(2, name)
        if not self.hashing:
            self.ring.notice(3, "prefix caching is off" if identity.hashes_wanted() else "WHYLATE_BLOCK_HASHES=off")

    # Sequences come and go.

    def queued(self, request, time: int) -> None:
        arrival = vars(request).get("_whylate", UNSEEN)
        known = self.live.get(request.request_id)
        if known is None:
            if request.request_id in self.scheduler.requests:  # else it was the end of a streaming session
                self.introduce(request, time, 0, arrival)
        elif request.resumable:
            self.ring.write(wire.QUEUED, wire.UPDATE, time, describe(known.handle, request, arrival))

    def introduce(self, request, time: int, flags: int, arrival: Arrival) -> Sequence:
        if len(self.live) > len(self.scheduler.requests) + AT_MOST:
            self.prune()
        self.handles = handle = self.handles + 1
        self.forget_tokens(request.request_id)
        sequence = Sequence(handle, time, describe(handle, request, arrival))
        self.live[request.request_id] = sequence
        self.ring.write(wire.QUEUED, flags, time, sequence.queued)
        if self.hashing:
            links = chain(request.block_hashes) if arrival.chain is None else arrival.chain
            sequence.hashed = len(links) // 8
            for first in range(0, sequence.hashed, wire.HASHES_MAX):
                part = links[first * 8 : (first + wire.HASHES_MAX) * 8]
                self.ring.write(wire.HASHES, 0, time, wire.hashes(handle, first, part))
        return sequence

    def sequence(self, request) -> Sequence:
        """One that was queued before this ring was opened is restated."""
        if known := self.live.get(request.request_id):
            return known
        sequence = self.introduce(request, 0, wire.REPEAT, UNSEEN)
        sequence.kind = CONTINUING if request.num_output_tokens else NEW
        return sequence

    def prolonged(self, session, emitted: int) -> None:
        """A streaming session has taken up a further chunk; it had emitted so much for the last one."""
        sequence = self.sequence(session)
        sequence.kind = PROLONGED
        sequence.emitted += emitted
        self.forget_tokens(session.request_id)

    def forget_tokens(self, id: str) -> None:
        """The next iteration shall see this member as one that joins, even if the engine never let it go."""
        if id in self.tokens:
            self.tokens = {other: n for other, n in self.tokens.items() if other != id}
            self.order = None

    def prune(self) -> None:
        """The engine has let these go, but their end was not seen."""
        for id in self.live.keys() - self.scheduler.requests.keys():
            self.ring.write(wire.FINISHED, 0, monotonic_ns(), wire.finished(self.live.pop(id).handle, 0, 0))

    def astray(self) -> list:
        """Live, and in none of the scheduler's queues: it will never run again."""
        scheduler = self.scheduler
        queued = {r.request_id for r in (*scheduler.running, *scheduler.waiting, *versions.aside(scheduler))}
        return [scheduler.requests[id] for id in self.live if id not in queued and id in scheduler.requests]

    def finished(self, request, time: int) -> None:
        sequence = self.live.pop(request.request_id, None)
        if sequence is None:
            return
        sequence.until = self.iteration
        self.gone[request.request_id] = sequence
        if len(self.gone) > AT_MOST:
            del self.gone[next(iter(self.gone))]
        reason = REASONS.get(request.status.name, 0)
        finish = wire.finished(sequence.handle, reason, sequence.emitted + request.num_output_tokens)
        if self.finishes is None:
            self.ring.write(wire.FINISHED, 0, time, finish)
        else:
            self.finishes.append(finish)
            self.irregular |= reason == ERROR

    def inside(self) -> Seen:
        """Of the step under way. Without the engine's own index, what one step may see is bounded instead."""
        seen, step = self.seen, versions.step(self.scheduler, self.iteration)
        if seen.step != step or len(seen.visits) > LOOKS:
            seen = self.seen = Seen(step)
        return seen

    def preempting(self, request, preemptor, cause: int, looked_at: int) -> None:
        sequence, by = self.sequence(request), self.live.get(getattr(preemptor, "request_id", ""))
        sequence.kind = RESUMED
        self.forget_tokens(request.request_id)
        if cause == MEMORY:
            seen, itself = self.inside(), preemptor is request
            seen.victims.append((request, not itself and self.priorities))
            if itself:
                seen.reached = looked_at
        manager = self.scheduler.kv_cache_manager
        tables = manager.coordinator.single_type_managers[0].req_to_blocks
        self.preempted.append((
            monotonic_ns(),
            sequence.handle,
            by.handle if by else 0,
            request.num_computed_tokens,
            sequence.emitted + request.num_output_tokens,
            manager.block_pool.get_num_free_blocks(),
            len(tables.get(request.request_id, ())),
            cause,
        ))  # fmt: skip

    def write_fills(self) -> None:
        fills = list(self.fills)
        self.fills.clear()
        for time, request, first, n in fills:
            if sequence := self.live.get(request.request_id) or self.gone.get(request.request_id):
                links = chain(request.block_hashes[max(sequence.hashed, first) : first + n])
                self.ring.write(wire.CACHE, wire.FILLED, time, wire.cache(sequence.handle, first, n, links))

    def freed(self, request) -> None:
        """Its blocks stay in the prefix cache until somebody needs the room."""
        sequence = self.live.get(request.request_id) or self.gone.get(request.request_id)
        blocks = self.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks.get(request.request_id)
        if blocks and sequence and self.hashing:
            users, handle = self.users, sequence.handle
            for block in blocks:
                users[block.block_id] = handle

    def write_evictions(self, time: int) -> None:
        users: dict[int, list] = {}
        for handle, block_hash in self.evicted:
            users.setdefault(handle, []).append(block_hash)
        self.evicted.clear()
        for handle, hashes in users.items():
            self.ring.write(wire.CACHE, wire.EVICTED, time, wire.cache(handle, 0, len(hashes), chain(hashes)))

    # A decision.

    def scheduled(self, entered: int, output, throttled: bool) -> None:
        returned = monotonic_ns()
        scheduler, ring, tokens = self.scheduler, self.ring, output.num_scheduled_tokens
        output.whylate_iteration = iteration = self.iteration + 1
        running, step = self.read(scheduler)
        running, waits = len(running), len(self.waiting) + len(self.aside)
        joins = leaves = changes = preemptions = held = drafts = b""
        verdict, skips, kinds, flags = NOBODY, b"", {}, 0

        if self.fills:
            self.write_fills()
        if self.evicted and (iteration % TOGETHER == 0 or len(self.evicted) >= AT_ONCE or not tokens):
            self.write_evictions(entered)
        # In steady decode, one token each, the ids alone tell: two lists compare faster than two dicts.
        order = list(tokens) if output.total_num_scheduled_tokens == len(tokens) else None
        same = order is not None and order == self.order or tokens == self.tokens
        if not same or len(tokens) != len(self.members):
            joins, leaves, changes, kinds = self.differences(tokens)
        if periodic := iteration % FULL_EVERY == 1:
            self.restate(iteration // FULL_EVERY % TURNS)
            joins, leaves, changes, flags = self.everyone(tokens, kinds), b"", b"", wire.FULL
        if self.prefilling:
            self.prefilling = {id: r for id, r in self.prefilling.items() if inner(r) and id in tokens}
        if waits or len(tokens) != running or len(self.live) > running + waits:
            astray = self.astray() if len(self.live) > running + waits else ()
            verdict = why(scheduler, output, self.inside(), throttled, step or iteration, astray)
            self.seen = NOTHING
            skips = b"".join([wire.SKIP.pack(self.sequence(r).handle, reason, code) for r, reason, code in verdict.skips])
        if self.preempted:
            preemptions = self.preemptions(entered)
        if verdict.stop == BLOCKS and (periodic or self.stop != BLOCKS):
            held = b"".join([wire.HOLDER.pack(self.sequence(r).handle, n, weight) for r, n, weight in holders(scheduler)])
        if output.scheduled_spec_decode_tokens:
            drafts = self.drafts(output)
        self.stop = verdict.stop
        if not same:  # to give up the last dict and take its like would be work for nothing
            self.tokens, self.order = tokens, order
        if periodic or skips != self.skips:
            self.skips = skips
            flags |= wire.SKIPS
        else:
            skips = b""

        self.pending[iteration] = tuple(self.prefilling)
        if len(self.pending) > PENDING_MAX:
            del self.pending[next(iter(self.pending))]
        words = ring.words
        words[LAUNCHED] = iteration
        words[LAUNCHED_AT] = entered
        words[LOAD] = running | waits << 32
        ring.write(wire.SCHEDULED, flags, entered, wire.scheduled(
            iteration,
            step,
            returned,
            self.digest,
            output.total_num_scheduled_tokens,
            len(tokens),
            running,
            waits,
            self.count_free(),
            self.token_budget,
            self.seq_budget,
            self.sequence(verdict.head).handle if verdict.head is not None else 0,
            verdict.need,
            min(self.spent, wire.U32),
            verdict.stop,
            verdict.code,
            joins, leaves, changes, preemptions, skips, held, drafts,
        ))  # fmt: skip
        self.iteration = iteration
        self.spent = monotonic_ns() - returned

    def differences(self, tokens: dict[str, int]) -> tuple[bytes, bytes, bytes, dict[str, int]]:
        """Joins, leaves and changes against the last iteration, and the kind of each join."""
        last, members, requests, pack = self.tokens.get, self.members, self.scheduler.requests, wire.JOIN.pack
        joins, leaves, changes, kinds = [], [], [], {}
        for id in [id for id, n in tokens.items() if last(id) != n]:
            if last(id) is not None:
                changes.append(wire.CHANGE.pack(members[id].handle, tokens[id]))
                continue
            request = requests[id]
            sequence = self.sequence(request)
            other = members.get(id)
            if other is not sequence:
                if other is not None:  # an earlier request under the same id
                    leaves.append(wire.LEAVE.pack(other.handle))
                    self.digest ^= other.mark
                members[id] = sequence
                self.digest ^= sequence.mark
            if inner(request):
                self.prefilling[id] = request
            kinds[id] = sequence.kind
            before = request.num_computed_tokens - tokens[id]  # `schedule()` has added them already
            if sequence.kind in (NEW, RESUMED):
                sequence.cached = before
            sequence.kind = CONTINUING
            joins.append(pack(sequence.handle, tokens[id], before, request.num_tokens, sequence.cached, kinds[id]))
        if len(members) != len(tokens):
            for id in members.keys() - tokens.keys():
                sequence = members.pop(id)
                self.digest ^= sequence.mark
                leaves.append(wire.LEAVE.pack(sequence.handle))
        return b"".join(joins), b"".join(leaves), b"".join(changes), kinds

    def everyone(self, tokens: dict[str, int], kinds: dict[str, int]) -> bytes:
        requests, members, kind, pack = self.scheduler.requests, self.members, kinds.get, wire.JOIN.pack
        joins = []
        for id, n in tokens.items():
            request, sequence = requests[id], members[id]
            before = request.num_computed_tokens - n
            joins.append(pack(sequence.handle, n, before, request.num_tokens, sequence.cached, kind(id, CONTINUING)))
        return b"".join(joins)

    def restate(self, turn: int) -> None:
        for sequence in self.live.values():
            if sequence.handle % TURNS == turn:
                self.ring.write(wire.QUEUED, wire.REPEAT, sequence.time, sequence.queued)

    def preemptions(self, entered: int) -> bytes:
        entries = list(self.preempted)
        self.preempted.clear()
        return b"".join([
            wire.PREEMPTION.pack(*facts, cause, wire.clamp((at - entered) // 1000, 0, wire.U32))
            for at, *facts, cause in entries
        ])  # fmt: skip

    def drafts(self, output) -> bytes:
        members = self.members
        return b"".join([
            wire.DRAFT.pack(members[id].handle, len(drafts))
            for id, drafts in output.scheduled_spec_decode_tokens.items()
        ])  # fmt: skip

    # Its completion.

    def updating(self, model_output) -> tuple:
        self.finishes, self.irregular = [], self.speculative
        sampled = [len(ids) for ids in model_output.sampled_token_ids] if self.speculative else None
        return monotonic_ns(), sampled

    def done(self, entered: int, sampled, output, model_output, results: dict) -> None:
        returned = monotonic_ns()
        finishes, self.finishes = self.finishes, None
        iteration = getattr(output, "whylate_iteration", 0)
        silent = self.pending.pop(iteration, None)
        if self.fills:
            self.write_fills()
        if silent is None:  # launched before this ring was opened
            for finish in finishes:
                self.ring.write(wire.FINISHED, 0, entered, finish)
            return
        tokens, key, emits = 0, 0.0, b""
        for result in results.values():
            tokens += len(result.outputs)
            key = key or result.timestamp
        # By the rule each member that is no inner chunk emits one token; the count alone says whether all did.
        if self.irregular or tokens != len(output.num_scheduled_tokens) - len(silent):
            tokens, emits = self.exceptions(output, model_output, results, silent, sampled)
        ring = self.ring
        words = ring.words
        words[COMPLETED] = iteration
        words[COMPLETED_AT] = entered
        ring.write(wire.DONE, 0, entered, wire.done(iteration, returned, key, tokens, emits, b"".join(finishes)))
        if self.gone:
            self.gone = {id: sequence for id, sequence in self.gone.items() if sequence.until > iteration}
        self.spent += monotonic_ns() - returned

    def exceptions(self, output, model_output, results, silent, sampled) -> tuple[int, bytes]:
        emitted = {out.request_id: len(out.new_token_ids) for result in results.values() for out in result.outputs}
        sampled = sampled or [len(ids) for ids in model_output.sampled_token_ids]
        rows = model_output.req_id_to_index
        silent, emits = set(silent), []
        for id in output.num_scheduled_tokens:
            tokens = emitted.get(id, 0)
            discarded = sampled[rows[id]] - tokens if sampled and id in rows else 0
            if discarded > 0 or tokens != (id not in silent):
                sequence = self.live.get(id) or self.gone.get(id)
                if sequence:
                    emits.append(wire.EMIT.pack(sequence.handle, tokens, max(discarded, 0)))
        return sum(emitted.values()), b"".join(emits)


def inner(request) -> bool:
    """It stops short of what is known of it, so nothing is sampled. `is_prefill_chunk` also counts what is still to be
    delivered, before 0.30 even of a time before its preemption."""
    return request.num_computed_tokens < request.num_tokens


def chain(block_hashes) -> bytes:
    return b"".join([block[:8] for block in block_hashes])


def describe(handle: int, request, arrival: Arrival) -> bytes:
    """Sizes and small numbers; of what was asked, and what is answered, nothing."""
    params, id, external = request.sampling_params, request.request_id, arrival.external
    child = not id.startswith(external) if external else re.match(r"\d+_", id)
    features = ADAPTER * bool(request.lora_request) | MULTIMODAL * bool(request.mm_features) | SESSION * bool(request.resumable)
    logprobs = prompt_logprobs = None
    if params is not None:
        logprobs, prompt_logprobs = params.logprobs, params.prompt_logprobs
        penal = params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1
        features |= PENALTIES * bool(penal) | GRAMMAR * (params.structured_outputs is not None)
    return wire.queued(
        handle,
        request.num_prompt_tokens,
        wire.clamp(request.max_tokens, 0, wire.U32),
        wire.clamp(request.priority, -(1 << 31), (1 << 31) - 1),
        arrival.at,
        request.arrival_time,
        request.client_index & wire.U16,
        0 if child else 1,
        asked(logprobs),
        asked(prompt_logprobs),
        features,
        id,
        external,
    )


def asked(logprobs: int | None) -> int:
    return -1 if logprobs is None else WHOLE_VOCABULARY if logprobs < 0 else min(logprobs, WHOLE_VOCABULARY)
