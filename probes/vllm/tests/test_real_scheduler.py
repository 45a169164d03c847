"""The installed vLLM's own Scheduler and AsyncScheduler, thousands of random iterations, against what the ring says of them.

Run with the engine's Python. The reasons are checked against the lines that `schedule()` really took (truth.py).
"""

import random
from collections import Counter, deque

import pytest

pytest.importorskip("vllm.v1.request", reason="vLLM is not importable: run this file with the engine's own Python")

import drive
from decode import Reader
from truth import Truth
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from whylate_vllm import engine as probe
from whylate_vllm import hooks, ring, versions

FINISHED = {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}  # vLLM's FinishReason: ours


@pytest.fixture(scope="module", autouse=True)
def hooked():
    import vllm.v1.core.block_pool as block_pool
    import vllm.v1.core.sched.scheduler as scheduler

    probe.hook_scheduler(scheduler)
    probe.hook_block_pool(block_pool)
    assert not hooks.missing


@pytest.fixture
def rings(tmp_path, monkeypatch):
    monkeypatch.setenv("WHYLATE_RING_DIR", str(tmp_path / "rings"))
    monkeypatch.setenv("WHYLATE_RING_BYTES", str(1 << 20))
    yield tmp_path
    for opened in list(ring.rings):
        opened.close()


class Check:
    """After every call: the reader's picture against the scheduler's own state."""

    def __init__(self, scheduler):
        self.scheduler, self.reader, self.truth = scheduler, Reader(), Truth(type(scheduler))
        self.seen = Counter()
        self.flight = deque()
        self.preemptions = Counter()
        self.waits = Counter()

    def follow(self):
        return self.reader.follow(self.scheduler._whylate.ring)

    def launch(self):
        s = self.scheduler
        reset = frozenset(s.reset_preempted_req_ids)
        with self.truth.watching(s):
            output = drive.launch(s)
        if not hasattr(s, "_whylate"):
            return output
        reader = self.follow()
        last, ids = reader.last, {seq.handle: seq.id for seq in reader.all.values()}
        by_id = {seq.id: seq for seq in reader.live.values()}
        f = last.fields

        assert {ids[h]: n for h, n in last.members.items()} == output.num_scheduled_tokens
        assert set(by_id) == set(s.requests)
        assert (f["running"], f["waiting"]) == s.get_request_counts()
        assert f["free"] == s.kv_cache_manager.block_pool.get_num_free_blocks()
        assert f["alias"] == s.current_step == f["iteration"]
        for id, tokens in output.num_scheduled_tokens.items():
            request, seq = s.requests[id], by_id[id]
            assert last.before[seq.handle] == request.num_computed_tokens - tokens
            assert last.total[seq.handle] == request.num_tokens
            assert last.silent(seq.handle) == (id in output.inner)
            held = s.kv_cache_manager.coordinator.single_type_managers[0]
            if s.cache_config.enable_prefix_caching:
                assert seq.cached // drive.BLOCK + sum(n for _, n in seq.fills) == held.num_cached_block.get(id, 0)
        self.admissions(output, by_id)
        self.preempted(output, f, by_id, reset)
        self.waiting(output, last, by_id)
        self.holders(f, ids)
        self.flight.append((f["iteration"], output))
        return output

    def admissions(self, output, by_id):
        cached = output.scheduled_cached_reqs
        hits = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        hits |= {id: n for id, n in zip(cached.req_ids, cached.num_computed_tokens) if id in cached.resumed_req_ids}
        for id, hit in hits.items():
            assert by_id[id].cached == hit or by_id[id].session
            self.seen["hit"] += hit > 0
            self.seen["new"] += 1

    def preempted(self, output, f, by_id, reset):
        entries = {p["victim"]: p for p in f["preemptions"]}
        assert {by_id[id].handle for id in output.preempted_req_ids if id in by_id} == set(entries)
        for victim, p in entries.items():
            administrative = self.reader.live[victim].id in reset
            assert p["cause"] == (2 if administrative else 1)
            assert bool(p["preemptor"]) == (not administrative)
            if not administrative:
                assert self.reader.live[p["preemptor"]].id == self.truth.preemptions[self.reader.live[victim].id][0]
                assert p["blocks"] and p["lost"]
            self.seen["administrative" if administrative else "preemption"] += 1

    def waiting(self, output, last, by_id):
        said = {self.reader.live[h].id: reason for h, reason in last.waits.items()}
        waiting = (*self.scheduler.waiting, *versions.aside(self.scheduler))
        assert said == self.truth.reasons(self.scheduler, output, waiting), self.truth.own
        if last.fields["stop"] == 3:
            assert last.fields["head"] == by_id[self.truth.head.request_id].handle
            assert last.fields["need"] == self.truth.need > last.fields["free"]
        self.waits.update(reason for reason, _ in said.values())

    def holders(self, f, ids):
        table = self.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks
        for holder in f["holders"]:
            blocks = table[ids[holder["handle"]]]
            assert holder["blocks"] == len(blocks)
            assert holder["weight"] == pytest.approx(sum(1 / block.ref_cnt for block in blocks), rel=1e-5)
            self.seen["holder"] += 1

    def complete(self, rng):
        s = self.scheduler
        iteration, output = self.flight.popleft()
        result = drive.execute(output, rng)
        sampled = dict(zip(result.req_ids, map(len, result.sampled_token_ids)))
        discarded = {seq.handle: seq.discarded for seq in self.reader.all.values()}
        outputs = s.update_from_output(output, result)
        reader = self.follow()
        last = reader.iterations[iteration]
        emitted = {o.request_id: o for out in outputs.values() for o in out.outputs}
        for handle, tokens in last.emitted.items():
            seq = reader.all[handle]
            got = emitted.get(seq.id)
            assert tokens == (len(got.new_token_ids) if got else 0)
            thrown = sampled[seq.id] - tokens
            assert seq.discarded - discarded[handle] == thrown
            self.seen["discarded"] += thrown
        finished = {
            o.request_id: FINISHED[int(o.finish_reason)]
            for o in emitted.values()
            if o.finish_reason is not None and o.request_id not in s.requests  # a session only pauses
        }
        assert {reader.all[x["handle"]].id: x["reason"] for x in last.done["finishes"]} == finished
        self.seen["finished"] += len(finished)
        assert last.done["key"] == next((out.timestamp for out in outputs.values()), 0.0)
        assert {seq.id for seq in reader.live.values()} == set(s.requests)


def run(scheduler, steps, seed, depth=1, resets=0.0, pauses=0.0, **traffic):
    check, rng = Check(scheduler), random.Random(seed)
    load = drive.Traffic(scheduler, seed, **traffic)
    for _ in range(steps):
        load.turn()
        if not hasattr(scheduler, "_whylate"):
            continue
        check.follow()
        if rng.random() < resets and scheduler.running:
            scheduler.reset_prefix_cache(reset_running_requests=True)
        if rng.random() < pauses:
            scheduler.set_pause_state(rng.choice(list(PauseState)))
        if scheduler.has_requests() or check.flight:
            check.launch()
            if rng.random() < 0.5:  # what comes and goes while the model is at work
                load.turn()
                check.follow()
            if len(check.flight) >= depth:
                check.complete(rng)
                if scheduler.num_spec_tokens and depth == 1:
                    drive.draft(scheduler, rng)
        else:
            check.seen["idle"] += 1
    while check.flight:
        check.complete(rng)
    live = len(scheduler.requests)
    scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    reader = check.follow()
    assert not reader.live
    aborted = [seq for seq in reader.all.values() if seq.reason == 3]
    assert len(aborted) == load.aborts + live or load.sessions  # vLLM calls the end of a session an abort, too
    assert {code for code, _ in reader.notices} <= {3} and scheduler._whylate.ring.words[ring.DROPPED] == 0
    assert all(guard.on for guard in hooks.Guard.all)
    for seq in reader.all.values():
        assert seq.reason and seq.output >= 0
    print(len(reader.iterations), "iterations", dict(check.seen), "waits", dict(check.waits))
    return check


STEPS = 4000


def test_synchronous(rings):
    check = run(drive.build(rings, blocks=160), STEPS, seed=1)
    assert check.seen["preemption"] > 20 and check.seen["hit"] > 50 and check.seen["holder"]
    assert {1, 2, 3, 4, 5} <= set(check.waits)


def test_two_in_flight(rings):
    check = run(drive.build(rings, asynchronous=True, blocks=160), STEPS, seed=2, depth=2)
    assert check.seen["preemption"] > 20 and check.seen["discarded"] > 20
    assert {1, 2, 3, 4, 5, 12} <= set(check.waits)


def test_priorities(rings):
    check = run(drive.build(rings, policy="priority", blocks=160), STEPS, seed=3, priorities=True)
    assert check.seen["preemption"] > 20


def test_administrative_resets(rings):
    for asynchronous in False, True:
        check = run(drive.build(rings, asynchronous), STEPS // 2, seed=4, depth=1 + asynchronous, resets=0.02)
        assert check.seen["administrative"] > 20


def test_pauses(rings):
    check = run(drive.build(rings), STEPS // 2, seed=5, pauses=0.05)
    assert 14 in check.waits


def test_without_chunks_and_caching(rings):
    check = run(drive.build(rings, chunked=False, caching=False, budget=1024), STEPS // 2, seed=6)
    assert check.seen["hit"] == 0


def test_prompts_longer_than_the_budget_wait_for_tokens(rings):
    check = run(drive.build(rings, chunked=False, budget=1024, length=1024), STEPS // 2, seed=7, rate=0.9, longest=900)
    assert 2 in check.waits


def test_watermark_and_partial_reservation(rings):
    run(drive.build(rings, watermark=0.05), STEPS // 2, seed=8)
    run(drive.build(rings, scheduler_reserve_full_isl=False), STEPS // 2, seed=9)


def test_long_prefill_threshold_and_fewer_active(rings):
    run(drive.build(rings, long_prefill_token_threshold=24, max_num_active_seqs=6), STEPS // 2, seed=10)


def test_three_in_flight(rings):
    check = run(drive.build(rings, asynchronous=True, blocks=160), STEPS // 2, seed=11, depth=3)
    assert 11 in check.waits


def test_grammars_that_compile_late_or_never(rings):
    for asynchronous in False, True:
        check = run(drive.build(rings, asynchronous), STEPS // 2, seed=12, depth=1 + asynchronous, grammars=True)
        assert 7 in check.waits
        assert any(seq.reason == 4 for seq in check.reader.all.values())


def test_drafts(rings):
    check = run(drive.build(rings, drafts=3), STEPS // 2, seed=13)
    assert any(iteration.drafts for iteration in check.reader.iterations.values())
    check = run(drive.build(rings, asynchronous=True, drafts=3), STEPS // 2, seed=14, depth=2)
    assert any(iteration.drafts for iteration in check.reader.iterations.values())


def test_streaming_sessions(rings):
    for asynchronous in False, True:
        check = run(drive.build(rings, asynchronous), STEPS // 2, seed=15, depth=1 + asynchronous, sessions=True)
        assert check.reader.updates and 15 in check.waits
