"""The faults of test_harmless.py on the installed vLLM's own Scheduler and AsyncScheduler: same decisions, same outputs.

Run with the engine's Python. The load is drive.py's, of one seed.
"""

import importlib
import os
import random
from collections import deque
from contextlib import contextmanager

import pytest

pytest.importorskip("vllm.v1.request", reason="vLLM is not importable: run this file with the engine's own Python")

import drive

from whylate_vllm import hooks, plugin, ring

STEPS = 600
MODULES = [importlib.import_module(name) for name in plugin.HOOKS if name.startswith("vllm.v1.core.")]


@pytest.fixture(scope="module", autouse=True)
def hooked():
    for module in MODULES:
        plugin.HOOKS[module.__name__](module)
    assert not hooks.missing


@contextmanager
def unhooked():
    """vLLM's own methods, as if there were no probe."""
    classes = {cls for module in MODULES for cls in vars(module).values() if isinstance(cls, type)}
    put_on = [(cls, name, method) for cls in classes for name, method in vars(cls).items() if hasattr(method, "whylate")]
    assert len(put_on) > 8
    for cls, name, method in put_on:
        setattr(cls, name, method.__wrapped__)
    try:
        yield
    finally:
        for cls, name, method in put_on:
            setattr(cls, name, method)


def run(folder, asynchronous, between=lambda scheduler: None):
    """All that the scheduler decided and gave out. `between` is called half way."""
    s = drive.build(folder, asynchronous, blocks=100)
    load, rng, flight, trace = drive.Traffic(s, 1, rate=0.4), random.Random(1), deque(), []
    for step in range(STEPS):
        if step == STEPS // 2:
            between(s)
        load.turn()
        if s.has_requests() or flight:
            output = drive.launch(s)
            flight.append(output)
            trace.append((
                list(output.num_scheduled_tokens.items()), sorted(output.preempted_req_ids or ()),
                sorted(output.finished_req_ids), [new.req_id for new in output.scheduled_new_reqs],
            ))  # fmt: skip
            if len(flight) > asynchronous:
                output = flight.popleft()
                results = s.update_from_output(output, drive.execute(output, rng))
                trace.append([
                    [(out.request_id, out.new_token_ids, out.finish_reason) for out in result.outputs]
                    for result in results.values()
                ])  # fmt: skip
    assert any(preempted for _, preempted, *_ in [entry for entry in trace if isinstance(entry, tuple)])
    return trace


@pytest.fixture(params=[False, True], ids=["synchronous", "asynchronous"])
def engine(request, tmp_path):
    with unhooked():
        without = run(tmp_path, request.param)
        assert not ring.rings
    return lambda between=lambda s: None: run(tmp_path, request.param, between) == without


def test_the_probe_on(engine, caplog):
    assert engine() and ring.rings and ring.rings[0].words[ring.LAUNCHED] > STEPS // 2
    assert not ours(caplog) and all(guard.on for guard in hooks.Guard.all)


def test_no_directory(engine, monkeypatch, caplog):
    monkeypatch.setenv("WHYLATE_RING_DIR", "/proc/self/whylate")
    assert engine() and not ring.rings and len(ours(caplog)) == 1


def test_a_name_that_is_taken(engine, tmp_path, caplog):
    (tmp_path / "rings").mkdir(exist_ok=True)
    os.mkdir(ring.name("engine", "scheduler"))
    assert engine() and not ring.rings and len(ours(caplog)) == 1


def test_a_ring_that_goes_away(engine, caplog):
    def gone(s):
        os.unlink(s._whylate.ring.path)
        s._whylate.ring.due = 0

    assert engine(gone) and len(ours(caplog)) == 1 and all(guard.on for guard in hooks.Guard.all)


def test_a_ring_that_is_cut_between_two_records(engine, caplog):
    def cut(s):
        os.truncate(s._whylate.ring.path, 0)
        s._whylate.ring.due = 0

    assert engine(cut) and len(ours(caplog)) == 1 and not any(guard.on for guard in hooks.Guard.all)


def test_an_error_inside_each_hook(engine, caplog):
    """The recorder's own methods raise, one after the other, from half way on."""

    def raising(*_, **__):
        raise RuntimeError("of our own making")

    names = [name for name in ("scheduled", "updating", "done", "queued", "finished", "preempting")]
    for name in names:
        caplog.clear()

        def break_it(s, name=name):
            setattr(s._whylate, name, raising)
            s._whylate.speculative = True  # so that the native helper leaves all of it to the Python

        assert engine(break_it)
        assert len(ours(caplog)) == 1 and "of our own making" in caplog.text
        assert sum(not guard.on for guard in hooks.Guard.all) == 1
        for guard in hooks.Guard.all:
            guard.on = True


def ours(caplog):
    return [record for record in caplog.records if record.name == "whylate_vllm"]
