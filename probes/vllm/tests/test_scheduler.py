"""The recorder on stub objects: what is written, when, and that nothing of it can harm the engine."""

import logging
import os
import struct
from types import SimpleNamespace

import pytest
from decode import Reader
from stubs import Output, Request, Status, make_scheduler_class, sampled

from whylate_vllm import engine as probe
from whylate_vllm import hooks, ring, wire
from whylate_vllm import scheduler as recording


class Rig:
    def __init__(self, **settings):
        self.cls = make_scheduler_class()
        probe.hook_scheduler(SimpleNamespace(Scheduler=self.cls))
        self.s = self.cls(**settings)
        self.reader = Reader()

    @property
    def recorder(self):
        return self.s._whylate

    def add(self, id, **request):
        request = Request(id, **request)
        self.s.add_request(request)
        return request

    def step(self, tokens, plan=None, drafts=None, complete=True, silent=(), made=1, **arguments):
        def decide(scheduler):
            if plan:
                plan(scheduler)
            return Output(dict(tokens), drafts)

        self.s.plan = decide
        output = self.s.schedule(**arguments)
        if complete:
            self.complete(output, silent, made)
        self.reader.follow(self.recorder.ring)
        return output

    def complete(self, output, silent=(), made=1):
        result = self.s.update_from_output(output, sampled(output, made, silent))
        self.reader.follow(self.recorder.ring)
        return result

    def admitting(self, *requests, before=0):
        return lambda scheduler: [scheduler.admit(request, before) for request in requests]

    @property
    def last(self):
        return self.reader.last.fields


def test_joins_changes_and_leaves():
    rig = Rig()
    a, b = rig.add("a", prompt=10), rig.add("b", prompt=20)
    rig.step({"b": 20, "a": 10}, rig.admitting(b, a))
    assert [j["handle"] for j in rig.last["joins"]] == [2, 1]  # the engine's order
    rig.step({"b": 1, "a": 1})
    assert [(c["handle"], c["tokens"]) for c in rig.last["changes"]] == [(2, 1), (1, 1)] and not rig.last["joins"]
    rig.step({"b": 1, "a": 1})
    assert not rig.last["changes"] and not rig.last["leaves"]
    rig.step({"a": 1})
    assert rig.last["leaves"] == [2]
    rig.step({"a": 1, "b": 1})
    assert [(j["handle"], j["kind"], j["before"]) for j in rig.last["joins"]] == [(2, 3, 22)]


def test_prefix_hits_and_chunks():
    rig = Rig()
    a = rig.add("a", prompt=100)
    rig.step({"a": 40}, rig.admitting(a, before=32), silent={"a"})
    join = rig.last["joins"][0]
    assert (join["before"], join["cached"], join["tokens"], join["total"], join["kind"]) == (32, 32, 40, 100, 1)
    done = rig.reader.last.done
    assert done["tokens"] == 0 and not done["emits"]  # an inner chunk is no exception
    rig.step({"a": 28})
    assert rig.reader.last.done["tokens"] == 1 and not rig.reader.last.done["emits"]


def test_equal_chunks_one_after_the_other():
    """The batch does not differ from the last one, yet the third chunk ends the prompt."""
    rig = Rig()
    rig.step({"a": 40}, rig.admitting(rig.add("a", prompt=120)), silent={"a"})
    rig.step({"a": 40}, silent={"a"})
    rig.step({"a": 40})
    assert [i.done["tokens"] for i in rig.reader.iterations.values()] == [0, 0, 1]
    assert not any(i.done["emits"] for i in rig.reader.iterations.values())


def test_the_whole_batch_is_restated_every_64_iterations():
    rig = Rig()
    requests = [rig.add(f"r{i}", limit=10_000) for i in range(5)]
    rig.step({r.request_id: 4 for r in requests}, rig.admitting(*requests))
    for _ in range(200):
        rig.step({r.request_id: 1 for r in requests})
    full = [n for n, i in rig.reader.iterations.items() if i.flags & wire.FULL]
    assert full == [1, 65, 129, 193] and all(rig.reader.iterations[n].flags & wire.SKIPS for n in full)
    joins = rig.reader.iterations[129].fields["joins"]
    assert [j["kind"] for j in joins] == [3] * 5 and joins[0]["before"] == 4 + 127


def test_a_reader_that_comes_late_learns_every_sequence():
    rig = Rig()
    requests = [rig.add(f"r{i}", limit=10_000) for i in range(40)]
    rig.step({r.request_id: 4 for r in requests}, rig.admitting(*requests))
    restated = {}
    take = rig.reader.queued
    rig.reader.queued = lambda flags, time, f: (
        restated.update({f["handle"]: time}) if flags & wire.REPEAT else None,
        take(flags, time, f),
    )
    for _ in range(1024):
        rig.step({r.request_id: 1 for r in requests})
    assert set(restated) == set(range(1, 41))
    assert restated[7] == rig.recorder.live["r6"].time


def test_a_finish_and_what_was_emitted():
    rig = Rig()
    a, b = rig.add("a", limit=2), rig.add("b")
    rig.step({"a": 4, "b": 4}, rig.admitting(a, b))
    rig.step({"a": 1, "b": 1})
    done = rig.reader.last.done
    assert done["finishes"] == [{"handle": 1, "reason": 2, "output": 2}] and done["key"] == 7.25 and done["tokens"] == 2
    rig.step({"b": 1})
    assert rig.last["leaves"] == [1]


def test_an_abort_during_execution_throws_a_token_away():
    rig = Rig()
    a, b = rig.add("a"), rig.add("b")
    output = rig.step({"a": 4, "b": 4}, rig.admitting(a, b), complete=False)
    rig.s.finish_requests("a", Status.FINISHED_ABORTED)
    rig.s.finish_requests("a", Status.FINISHED_ABORTED)  # the second queue: counts for nothing
    rig.complete(output)
    assert rig.reader.last.done["emits"] == [{"handle": 1, "tokens": 0, "discarded": 1}]
    assert rig.reader.last.done["tokens"] == 1 and not rig.reader.last.done["finishes"]
    assert [message for message, _ in rig.reader.events].count("finished") == 1
    assert not rig.recorder.gone


def test_everything_is_aborted_at_once():
    rig = Rig()
    a, _ = rig.add("a"), rig.add("b")
    rig.step({"a": 4}, rig.admitting(a))
    rig.s.finish_requests(None, Status.FINISHED_ABORTED)
    rig.reader.follow(rig.recorder.ring)
    assert not rig.reader.live and {s.reason for s in rig.reader.all.values()} == {3}


def test_an_id_that_comes_again_is_another_sequence():
    rig = Rig()
    rig.step({"a": 4}, rig.admitting(rig.add("a")))
    rig.s.finish_requests("a", Status.FINISHED_ABORTED)
    rig.step({"a": 4}, rig.admitting(rig.add("a")))  # the same dict as before
    assert rig.last["leaves"] == [1] and [(j["handle"], j["kind"]) for j in rig.last["joins"]] == [(2, 1)]


def test_two_decisions_in_flight():
    rig = Rig()
    a, b = rig.add("a"), rig.add("b")
    first = rig.step({"a": 4}, rig.admitting(a), complete=False)
    second = rig.step({"a": 1, "b": 4}, rig.admitting(b), complete=False)
    rig.complete(first)
    rig.s.finish_requests("a", Status.FINISHED_ABORTED)
    third = rig.step({"b": 1}, complete=False)
    rig.complete(second)
    rig.complete(third)
    done = [i.done for i in rig.reader.iterations.values()]
    assert [d["tokens"] for d in done] == [1, 1, 1]
    assert done[1]["emits"] == [{"handle": 1, "tokens": 0, "discarded": 1}]
    assert rig.recorder.ring.words[ring.COMPLETED] == rig.recorder.ring.words[ring.LAUNCHED] == 3


def test_drafts_accepted_and_rejected():
    rig = Rig(spec=3)
    a, b = rig.add("a", limit=100), rig.add("b", limit=100)
    rig.step({"a": 4, "b": 4}, rig.admitting(a, b))
    rig.step({"a": 4, "b": 1}, drafts={"a": [1, 2, 3]}, made=1)
    assert rig.last["drafts"] == [{"handle": 1, "tokens": 3}] and not rig.reader.last.done["emits"]
    a.num_computed_tokens -= 3
    rig.step({"a": 4, "b": 1}, drafts={"a": [1, 2, 3]}, made=3)
    assert rig.reader.last.done["tokens"] == 6
    assert rig.reader.last.done["emits"][0] == {"handle": 1, "tokens": 3, "discarded": 0}


def test_a_preemption_names_who_took_the_blocks():
    rig = Rig(free=0)
    a, b = rig.add("a", prompt=30), rig.add("b", prompt=20)
    rig.step({"a": 30, "b": 20}, rig.admitting(a, b))
    rig.s.tables["b"] = [SimpleNamespace(ref_cnt=1)] * 2

    def schedule(scheduler):
        request = a  # noqa: F841  (this is where the probe looks for it)
        scheduler._preempt_request(b, 0.0)

    rig.step({"a": 1}, schedule)
    (p,) = rig.last["preemptions"]
    assert (p["victim"], p["preemptor"], p["lost"], p["output"], p["free"], p["blocks"], p["cause"]) == (2, 1, 20, 1, 0, 2, 1)
    assert (rig.last["stop"], rig.last["leaves"], rig.last["waiting"]) == (5, [2], 1)
    assert rig.reader.last.waits == {2: (5, 0)}
    rig.step({"a": 1, "b": 21}, rig.admitting(b))
    assert [(j["kind"], j["total"]) for j in rig.last["joins"]] == [(2, 21)]


def test_a_reset_preempts_everybody_and_they_come_back_at_once():
    rig = Rig()
    a = rig.add("a", prompt=30)
    rig.step({"a": 30}, rig.admitting(a))
    rig.step({"a": 1})
    rig.s.reset_prefix_cache(reset_running_requests=True)
    rig.step({"a": 32}, rig.admitting(a))
    assert rig.last["preemptions"][0]["cause"] == 2 and rig.last["preemptions"][0]["preemptor"] == 0
    assert [(j["handle"], j["kind"], j["tokens"]) for j in rig.last["joins"]] == [(1, 2, 32)] and not rig.last["leaves"]
    assert ("cache",) in {event[:1] for event in rig.reader.events}


# Who waits, and why.


def visiting(*requests):
    def visit(scheduler):
        for request in requests:
            if scheduler._handle_blocked_waiting_request(request):
                scheduler._get_local_prefix_cache_hit(request)

    return visit


def test_nobody_waits():
    rig = Rig()
    rig.step({"a": 4}, rig.admitting(rig.add("a")))
    assert (rig.last["stop"], rig.last["head"], rig.last["need"]) == (0, 0, 0)


def test_the_sequence_limit():
    rig = Rig(seqs=1)
    a, _ = rig.add("a"), rig.add("b")
    rig.step({"a": 4}, rig.admitting(a))
    assert (rig.last["stop"], rig.last["seq_budget"], rig.reader.last.waits) == (1, 1, {2: (1, 0)})


def test_the_token_budget():
    rig = Rig(budget=4)
    a, _ = rig.add("a"), rig.add("b")
    rig.step({"a": 4}, rig.admitting(a))
    assert (rig.last["stop"], rig.last["token_budget"]) == (2, 4)


def test_blocks_name_the_head_its_need_and_the_holders():
    rig = Rig(free=3)
    a, b, _ = rig.add("a", limit=1000), rig.add("b", prompt=100), rig.add("c")
    shared = SimpleNamespace(ref_cnt=2)
    rig.s.tables["a"] = [shared, shared] + [SimpleNamespace(ref_cnt=1)] * 3

    def plan(scheduler):
        scheduler.admit(a)
        visiting(b)(scheduler)

    rig.step({"a": 4}, plan)
    assert (rig.last["stop"], rig.last["head"], rig.last["need"], rig.last["free"]) == (3, 2, 7, 3)
    assert rig.last["holders"] == [{"handle": 1, "blocks": 5, "weight": 4.0}]
    assert rig.reader.last.waits == {2: (3, 0), 3: (4, 0)}
    rig.step({"a": 1}, visiting(b))
    assert rig.last["stop"] == 3 and not rig.last["holders"]
    for _ in range(64):
        rig.step({"a": 1}, visiting(b))
    assert sum(bool(i.fields["holders"]) for i in rig.reader.iterations.values()) == 2


def test_a_grammar_that_is_not_ready():
    rig = Rig()
    a, b = rig.add("a"), rig.add("b")
    b.status = Status.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR

    def plan(scheduler):
        visiting(b, a)(scheduler)
        scheduler.admit(a)

    rig.step({"a": 4}, plan)
    assert rig.last["skips"] == [{"handle": 2, "reason": 7, "code": 0}] and rig.last["stop"] == 0
    rig.step({"a": 1}, visiting(b))
    assert not rig.reader.last.flags & wire.SKIPS and rig.reader.last.waits == {2: (7, 0)}  # in force until replaced
    b.status = Status.WAITING
    rig.step({"a": 1, "b": 4}, lambda scheduler: (visiting(b)(scheduler), scheduler.admit(b)))
    assert rig.reader.last.flags & wire.SKIPS and not rig.last["skips"]


def test_a_running_sequence_whose_last_token_is_under_way():
    rig = Rig()
    a, b = rig.add("a", limit=2), rig.add("b")
    rig.step({"a": 4, "b": 4}, rig.admitting(a, b), complete=False)
    a.num_output_placeholders, a.num_computed_tokens = 2, 6
    rig.step({"b": 1}, complete=False)
    assert rig.last["skips"] == [{"handle": 1, "reason": 12, "code": 0}] and rig.last["stop"] == 0


def test_paused():
    rig = Rig()
    rig.add("a")
    rig.s._pause_state.name = "PAUSED_ALL"
    rig.step({})
    assert (rig.last["stop"], rig.last["members"]) == (14, 0)


def test_what_is_not_understood_is_other():
    rig = Rig()
    a, b = rig.add("a"), rig.add("b")
    b.has_encoder_inputs = True
    rig.step({"a": 4}, lambda scheduler: (scheduler.admit(a), visiting(b)(scheduler)))
    assert (rig.last["stop"], rig.last["stop_code"], rig.last["head"]) == (15, 1, 2)


# Requests, hashes, blocks.


def described(rig):
    frames, take = [], rig.reader.queued
    rig.reader.queued = lambda flags, time, f: (frames.append(f), take(flags, time, f))
    rig.reader.follow(rig.recorder.ring)
    return frames[-1]


def test_what_is_said_of_a_request():
    rig = Rig()
    rig.add("cmpl-1", prompt=7, limit=1 << 40, priority=-(10**15), logprobs=-1, penalty=0.5)
    f = described(rig)
    assert (f["prompt"], f["max"], f["priority"]) == (7, 0xFFFFFFFF, -(1 << 31))  # clients choose these: they are cut
    assert (f["logprobs"], f["prompt_logprobs"], f["features"], f["n"], f["wall"]) == (32767, -1, 1, 1, 1.5)


@pytest.mark.parametrize(
    "id, external, n",
    [("cmpl-1-0-abcdef12", "cmpl-1-0", 1), ("2_cmpl-1-0-abcdef12", "cmpl-1-0", 0), ("1_x-abcdef12", "1_x", 1),
     ("2_cmpl-1-0-abcdef12", "", 0), ("cmpl-1-0-abcdef12", "", 1)],
)  # fmt: skip
def test_a_child_of_several_is_told_by_its_external_id(id, external, n):
    request = Request(id)
    body = recording.describe(1, request, recording.Arrival(9, external, b""))
    assert struct.unpack_from("<H", body, 34)[0] == n and struct.unpack_from("<q", body, 16)[0] == 9


def test_evictions_name_their_last_user():
    rig = Rig()
    a, seen = rig.add("a"), []
    rig.reader.cache = lambda flags, time, f: seen.append((flags, f))
    rig.step({"a": 4}, rig.admitting(a))

    class Manager:
        _whylate = rig.recorder

        def free(self, request):
            rig.s.tables.pop(request.request_id)

    class Pool:
        _whylate = rig.recorder

        def _maybe_evict_cached_block(self, block):
            return block.block_hash is not None

        def cache_full_blocks(self):
            pass

    probe.hook_cache_manager(SimpleNamespace(KVCacheManager=Manager))
    probe.hook_block_pool(SimpleNamespace(BlockPool=Pool))
    rig.s.tables["a"] = [SimpleNamespace(block_id=5), SimpleNamespace(block_id=6)]
    Manager().free(a)
    pool, name = Pool(), struct.pack("<Q", 77) + b"more"
    for id, hashed in (5, name), (6, None), (7, name):
        pool._maybe_evict_cached_block(SimpleNamespace(block_id=id, block_hash=hashed))
    rig.step({"a": 1})
    assert not seen  # they may wait for others
    rig.step({})
    assert seen == [
        (wire.EVICTED, {"handle": 1, "first": 0, "n": 1, "hash": [77]}),
        (wire.EVICTED, {"handle": 0, "first": 0, "n": 1, "hash": [77]}),
    ]


def test_hashes_of_the_prompt_and_of_what_fills_later():
    rig = Rig()
    hashes = [bytes([i]) * 32 for i in range(1, 6)]
    a = rig.add("a", prompt=70, hashes=hashes[:4])
    rig.recorder.fills += [(5, a, 0, 4), (6, a, 4, 1)]
    a.block_hashes = hashes
    seen = []
    rig.reader.cache = lambda flags, time, f: seen.append((flags, time, f))
    rig.step({"a": 4}, rig.admitting(a))
    assert rig.reader.all[1].chain == [int.from_bytes(h[:8], "little") for h in hashes[:4]]
    assert seen == [
        (1, 5, {"handle": 1, "first": 0, "n": 4, "hash": []}),
        (1, 6, {"handle": 1, "first": 4, "n": 1, "hash": [0x0505050505050505]}),
    ]


def test_a_very_long_prompt_has_several_frames_of_hashes():
    rig = Rig()
    rig.add("a", prompt=200_000, hashes=[os.urandom(32) for _ in range(9000)])
    rig.reader.follow(rig.recorder.ring)
    assert len(rig.reader.all[1].chain) == 9000
    assert [message for message, _ in rig.reader.events].count("hashes") == 3


def test_hashes_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("WHYLATE_BLOCK_HASHES", "off")
    rig = Rig()
    rig.add("a", prompt=70, hashes=[bytes(32)] * 4)
    rig.reader.follow(rig.recorder.ring)
    assert not rig.reader.all[1].chain and rig.reader.notices == [(3, "WHYLATE_BLOCK_HASHES=off")]


def test_filled_blocks_are_those_of_the_first_group_only():
    class BlockPool:
        hash_block_size = 16

        def cache_full_blocks(self, request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id):
            pass

    probe.hook_block_pool(SimpleNamespace(BlockPool=BlockPool))
    rig, pool = Rig(), BlockPool()
    a = rig.add("a")
    facts = {"request": a, "blocks": [], "num_cached_blocks": 1, "num_full_blocks": 3, "block_size": 32}
    pool.cache_full_blocks(kv_cache_group_id=0, **facts)  # a pool of nobody that is watched
    pool._whylate = rig.recorder
    pool.cache_full_blocks(kv_cache_group_id=1, **facts)
    assert not rig.recorder.fills
    pool.cache_full_blocks(kv_cache_group_id=0, **facts)
    pool.cache_full_blocks(a, [], 3, 3, 32, 0)
    assert [fill[1:] for fill in rig.recorder.fills] == [(a, 2, 4)]  # in blocks of the hashes' size


def test_a_recorder_that_comes_late_restates_what_it_finds():
    rig = Rig()
    a = rig.add("a")
    rig.step({"a": 4}, rig.admitting(a))
    closed = vars(rig.s).pop("_whylate").ring
    closed.close()
    os.unlink(closed.path)
    rig.reader = Reader()
    rig.step({"a": 1})
    assert rig.reader.all[1].id == "a" and rig.last["iteration"] == 1


def test_the_arrival_is_written_by_the_input_thread_and_repeated_by_the_scheduler():
    class EngineCore:
        vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_index=2))

        def preprocess_add_request(self, request):
            return Request(request.request_id, hashes=[bytes(range(32))]), 0

    probe.hook_engine_core(SimpleNamespace(EngineCore=EngineCore))
    core, rig = EngineCore(), Rig()
    new = SimpleNamespace(request_id="0_c-12345678", external_req_id="c", arrival_time=3.5)
    request, wave = core.preprocess_add_request(new)
    messages = []
    reader = Reader()
    reader.arrived = lambda flags, time, f: messages.append((time, f))
    reader.hello = lambda flags, time, f: messages.append(f["engine"]["rank"])
    reader.follow(core._whylate)
    assert "engine-input" in core._whylate.path and messages[0] == 2
    assert messages[1][1] == {"wall": 3.5, "id": "0_c-12345678", "external": "c"}
    rig.s.add_request(request)
    f = described(rig)
    assert (f["arrived"], f["external"], f["n"]) == (messages[1][0], "c", 0)


# Nothing of ours reaches the engine.


def breaking(rig, name):
    def broken(*_, **__):
        raise RuntimeError("of our own making")

    setattr(rig.recorder, name, broken)


@pytest.mark.parametrize(
    "broken, hook",
    [("scheduled", "schedule"), ("updating", "update_from_output"), ("done", "update_from_output"), ("queued", "add_request"),
     ("finished", "_free_request")],
)  # fmt: skip
def test_a_hook_that_raises_is_disabled_once_and_says_so(broken, hook, caplog):
    rig = Rig()
    a = rig.add("a")
    breaking(rig, broken)
    rig.recorder.speculative = True  # so that the native helper leaves all of it to the Python
    b = rig.add("b", limit=1)
    for i in range(3):
        tokens = {"a": 4, "b": 4} if i == 0 else {"a": 1}
        rig.s.plan = lambda s, tokens=tokens: Output(tokens)
        if i == 0:
            rig.s.admit(a), rig.s.admit(b)
        output = rig.s.schedule()
        results = rig.s.update_from_output(output, sampled(output))
        assert [out.request_id for out in results[0].outputs] == (["a", "b"] if i == 0 else ["a"])
    guards = {guard.name: guard.on for guard in hooks.Guard.all[-20:] if guard.name.startswith("Scheduler.")}
    assert not guards.pop(f"Scheduler.{hook}") and all(guards.values())
    said = f"Scheduler.{hook}: RuntimeError: of our own making (test_scheduler.py:"
    assert len(caplog.records) == 1 and said in caplog.text
    notices = []
    reader = Reader()
    for name in "queued", "scheduled", "done", "finished":
        setattr(reader, name, None)
    reader.notice = lambda flags, time, f: notices.append((f["code"], f["text"]))
    reader.follow(rig.recorder.ring)
    assert len(notices) == 1 and notices[0][0] == 1 and notices[0][1].startswith(said)
    assert rig.recorder.ring.words[ring.ERRORS] == 1


def test_the_engines_own_errors_pass_as_they_are():
    rig = Rig()
    rig.add("a")
    rig.s.plan = lambda s: 1 / 0
    with pytest.raises(ZeroDivisionError) as caught:
        rig.s.schedule()
    assert caught.value.__context__ is None
    with pytest.raises(AttributeError, match="num_scheduled_tokens"):
        rig.s.update_from_output(None, SimpleNamespace(sampled_token_ids=[]))
    assert all(guard.on for guard in hooks.Guard.all)


def test_without_a_ring_the_probe_is_off_and_says_so_once(monkeypatch, caplog):
    monkeypatch.setenv("WHYLATE_RING_DIR", "/proc/self/whylate")
    rig = Rig()
    a = rig.add("a")
    rig.s.plan = lambda s: Output({"a": 4})
    rig.s.admit(a)
    output = rig.s.schedule()
    assert rig.s.update_from_output(output, sampled(output))[0].outputs[0].request_id == "a"
    assert not any(guard.on for guard in hooks.Guard.all)
    Rig().add("b")  # a module that is imported later
    assert [r.levelno for r in caplog.records] == [logging.WARNING] and "/proc/self/whylate" in caplog.text


def test_a_missing_hook_point_is_a_notice_and_no_capability():
    cls = make_scheduler_class()
    del cls._preempt_request
    hooks.installed.discard("Scheduler._preempt_request")
    probe.hook_scheduler(SimpleNamespace(Scheduler=cls))
    rig = Rig.__new__(Rig)
    rig.s, rig.reader = cls(), Reader()
    hello = []
    rig.reader.hello = lambda flags, time, f: hello.append(f)
    rig.add("a")
    rig.reader.follow(rig.recorder.ring)
    assert rig.reader.notices == [(2, "stubs.Scheduler._preempt_request")]
    assert hello[0]["capabilities"]["preemptions"] is False and hello[0]["capabilities"]["queued"] is True


def test_without_the_other_hooks_nothing_grows(monkeypatch):
    """Each hook may have disabled itself alone."""
    monkeypatch.setattr(recording, "AT_MOST", 10)
    rig = Rig()
    rig.add("first")
    for guard in hooks.Guard.all:
        guard.on &= guard.name not in ("Scheduler.schedule", "Scheduler._free_request")
    for i in range(100):
        rig.s.finish_requests(None, Status.FINISHED_ABORTED)
        waiting = rig.add(f"r{i}")
        rig.s.current_step += 1
        rig.s._handle_blocked_waiting_request(waiting)
    assert len(rig.recorder.live) <= 12 and len(rig.recorder.seen.visits) == 1
    rig.reader.follow(rig.recorder.ring)
    assert {sequence.reason for sequence in rig.reader.all.values()} == {0}
    for i in range(100):
        rig.recorder.finished(rig.add(f"f{i}"), 1)
    assert len(rig.recorder.gone) == 10 and rig.recorder.preempted.maxlen and rig.recorder.fills.maxlen


def test_hooks_are_put_on_once():
    cls = make_scheduler_class()
    module = SimpleNamespace(Scheduler=cls)
    probe.hook_scheduler(module)
    schedule = cls.schedule
    probe.hook_scheduler(module)
    assert cls.schedule is schedule


def test_a_forked_engine_opens_a_ring_of_its_own():
    rig = Rig()
    a = rig.add("a")
    rig.step({"a": 4}, rig.admitting(a))
    head, reading_writing = rig.recorder.ring.head, os.pipe()
    child = os.fork()
    if not child:
        try:
            rig.s.plan = lambda s: Output({"a": 1})
            rig.s.schedule()
            os.write(reading_writing[1], rig.recorder.ring.path.encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert f"-{child}-" in os.read(reading_writing[0], 4096).decode()
    assert rig.recorder.ring.head == head
