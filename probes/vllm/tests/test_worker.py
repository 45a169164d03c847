"""The worker's hooks, on stubs: a device that says when it is done."""

from types import SimpleNamespace

import pytest

from whylate_vllm import hooks, ring, wire, worker
from whylate_vllm.dump import decode, frames


class Event:
    """One CUDA event: recorded now, reached when the test says so."""

    made = []

    def __init__(self, enable_timing=False):
        self.reached, self.number = False, len(Event.made)
        Event.made.append(self)

    def record(self):
        pass

    def query(self):
        return self.reached

    def elapsed_time(self, end):
        assert self.reached and end.reached
        return (end.number - self.number) * 1.5  # ms


CUDA = SimpleNamespace(Event=Event, max_memory_allocated=lambda: 12345)


def rig(monkeypatch, cuda=False, eager=False, graphs="FULL_AND_PIECEWISE"):
    Event.made = []
    monkeypatch.setattr(worker, "device", lambda worker: CUDA if cuda else None)

    class Worker:
        def __init__(self):
            self.rank = 3
            self.vllm_config = SimpleNamespace(
                compilation_config=SimpleNamespace(cudagraph_mode=SimpleNamespace(name=graphs)),
                model_config=SimpleNamespace(enforce_eager=eager),
                parallel_config=SimpleNamespace(data_parallel_index=1),
            )
            self.shapes, self.result = [], None

        def execute_model(self, scheduler_output):
            for shape in self.shapes:
                module.dispatch_cg_and_sync_dp(*shape)
            return self.result

        def sample_tokens(self, grammar_output):
            return "tokens"

    def dispatch_cg_and_sync_dp(mode, tokens):
        return SimpleNamespace(cg_mode=SimpleNamespace(name=mode), num_tokens=tokens), None

    module = SimpleNamespace(__name__="runner", dispatch_cg_and_sync_dp=dispatch_cg_and_sync_dp)
    worker.hook_worker(SimpleNamespace(Worker=Worker))
    worker.hook_second_runner(module)
    return Worker(), module


def output(iteration):
    return SimpleNamespace(whylate_iteration=iteration)


def written(name):
    (opened,) = ring.rings
    return [m["fields"] for m in map(decode, frames(opened.path)) if m["message"] == name]


def test_a_step_is_execution_and_sampling(monkeypatch):
    w, module = rig(monkeypatch)
    w.shapes = [("FULL", 32), ("NONE", 5)]  # the second is the drafter's
    assert w.execute_model(output(7)) is None
    assert not written("step")
    assert w.sample_tokens(None) == "tokens"
    (step,) = written("step")
    assert step.pop("returned") > 0
    assert step == {"iteration": 7, "rank": 3, "padded": 32, "mode": worker.FULL, "eager": 0, "device": 0, "wait": 0, "peak": 0}
    capabilities = decode(frames(ring.rings[0].path)[0])["fields"]["capabilities"]
    assert capabilities["steps"] and capabilities["step_graph"]
    assert not capabilities["step_device"] and not capabilities["step_peak"]


def test_an_output_at_once_ends_the_step(monkeypatch):
    w, _ = rig(monkeypatch)
    w.result = "output"
    assert w.execute_model(output(1)) == "output"
    assert [s["iteration"] for s in written("step")] == [1]


def test_batches_without_a_number_are_nobodys(monkeypatch):
    w, module = rig(monkeypatch)
    w.result = "output"
    w.execute_model(SimpleNamespace())
    w.sample_tokens(None)
    module.dispatch_cg_and_sync_dp("FULL", 8)
    assert not ring.rings


def test_eager_although_there_are_graphs(monkeypatch):
    w, _ = rig(monkeypatch)
    w.result, w.shapes = "output", [("NONE", 700)]
    w.execute_model(output(1))
    assert [(s["mode"], s["eager"]) for s in written("step")] == [(worker.NONE, 1)]


@pytest.mark.parametrize("without", [{"eager": True}, {"graphs": "NONE"}])
def test_eager_by_configuration_is_no_fallback(monkeypatch, without):
    w, _ = rig(monkeypatch, **without)
    w.result, w.shapes = "output", [("NONE", 700)]
    w.execute_model(output(1))
    assert [(s["mode"], s["eager"]) for s in written("step")] == [(worker.NONE, 0)]


def test_the_device_is_not_waited_for(monkeypatch):
    w, _ = rig(monkeypatch, cuda=True)
    for iteration in 1, 2:
        w.execute_model(output(iteration))
        w.sample_tokens(None)
    assert not written("step")
    for event in Event.made[:2]:
        event.reached = True
    w.execute_model(output(3))
    w.sample_tokens(None)
    assert [(s["iteration"], s["device"], s["peak"]) for s in written("step")] == [(1, 1_500_000, 12345)]
    for event in Event.made:
        event.reached = True
    w.execute_model(output(4))
    w.sample_tokens(None)
    assert [s["iteration"] for s in written("step")] == [1, 2, 3]  # the last one is still under way


def test_a_device_that_never_answers_is_bounded(monkeypatch):
    w, _ = rig(monkeypatch, cuda=True)
    for iteration in range(1, worker.PENDING_MAX + 11):
        w.execute_model(output(iteration))
        w.sample_tokens(None)
    steps = written("step")
    assert [s["iteration"] for s in steps] == list(range(1, 11)) and not any(s["device"] for s in steps)
    assert all(guard.on for guard in hooks.Guard.all) and wire.STEP == 21
