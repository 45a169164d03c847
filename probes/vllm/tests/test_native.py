"""The native helper: what it writes is what the Python writes, and nothing of it can harm the engine either."""

import inspect
import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pytest
from stubs import Output, Request, Status, make_scheduler_class, sampled

from whylate_vllm import engine, hooks, native, ring, wire
from whylate_vllm import scheduler as recording

HERE, SOURCE = Path(__file__).parent, Path(__file__).parents[1] / "src"
needed = pytest.mark.skipif(native.helper is None, reason="the native helper is not there, see scripts/probe-native.sh")


class Load:
    """A scheduler's life, mostly steady: long decodes, short ones, chunks, preemptions, aborts, fills and evictions."""

    def __init__(self, seed: int, speculative: bool = False):
        cls = make_scheduler_class()
        engine.hook_scheduler(SimpleNamespace(Scheduler=cls))
        self.rng, self.count = random.Random(seed), 0
        self.s = s = cls(seqs=12, spec=2 * speculative)
        s.plan = self.plan
        pool = type("Pool", (type(s.kv_cache_manager.block_pool),), {})
        engine.hook_block_pool(SimpleNamespace(BlockPool=pool, __name__="pool"))
        s.kv_cache_manager.block_pool.__class__ = pool

    def plan(self, s):
        rng, tokens = self.rng, {}
        if len(s.running) > 2 and rng.random() < 0.02:
            request = s.running[0]
            s._preempt_request(s.running[-1], 0.0)
            del request
        for request in s.running:
            left = request.num_tokens - request.num_computed_tokens
            if rng.random() < 0.999:
                tokens[request.request_id] = max(min(left, 16), 1)
        while s.waiting and len(s.running) < s.max_num_active_reqs and rng.random() < 0.9:
            request = s.waiting[0]
            s.admit(request)
            tokens[request.request_id] = min(request.num_tokens, 16)
        pool = s.kv_cache_manager.block_pool
        pool.free = rng.randrange(900)
        if tokens and rng.random() < 0.2:
            pool.cache_full_blocks(s.requests[next(iter(tokens))], [], 0, 1, 16, kv_cache_group_id=0)
        if rng.random() < 0.1:
            s._whylate.evicted.append((0, bytes([rng.randrange(256)]) * 32))
        drafts = {id: [1] for id in tokens if s.num_spec_tokens and rng.random() < 0.2}
        return Output(tokens, drafts)

    def turn(self):
        rng, s = self.rng, self.s
        if rng.random() < 0.03 or not s.requests:
            self.count += 1
            limit = rng.randrange(1, rng.choice((4, 300)))
            s.add_request(Request(f"r{self.count}", prompt=rng.randrange(1, 60), limit=limit, hashes=[bytes([7]) * 32] * 2))
        output = s.schedule(throttle_prefills=False)
        if rng.random() < 0.004 and s.requests:
            s.finish_requests(rng.choice(list(s.requests)), Status.FINISHED_ABORTED)
        silent = {id for id in output.num_scheduled_tokens if id in s.requests and s.requests[id].is_prefill_chunk}
        if rng.random() < 0.5:
            return s.update_from_output(output, sampled(output, silent=silent))
        return s.update_from_output(scheduler_output=output, model_runner_output=sampled(output, silent=silent))


def written(seed: int, turns: int, speculative: bool) -> str:
    """All frames in hex, and the header's words."""
    load = Load(seed, speculative)
    for _ in range(turns):
        load.turn()
    opened = load.s._whylate.ring
    assert all(guard.on for guard in hooks.Guard.all) and not opened.words[ring.DROPPED]
    data = os.pread(opened.fd, opened.head, ring.HEADER)
    assert len(data) == opened.head
    return data.hex() + " " + os.pread(opened.fd, 96, 64).hex()


def bare(line: str) -> tuple[list, list]:
    """The frames without what depends on clocks: times, `returned`, `spent`, times of preemptions; and the header's words."""
    data, words = map(bytes.fromhex, line.split())
    frames, at = [], 0
    while at < len(data):
        size, sequence, _, magic, kind, flags = wire.HEAD.unpack_from(data, at + 4)
        frame, body = data[at : at + size], bytearray(data[at + wire.OVERHEAD : at + size])
        assert crc32(frame[4:]) == int.from_bytes(frame[:4], "little") and magic == wire.MAGIC
        at += size
        if kind in (wire.HELLO, wire.CLOCK):
            body = b""
        elif kind == wire.SCHEDULED:
            body[16:24], body[68:72] = bytes(8), bytes(4)
            joins, leaves, changes, preemptions = struct.unpack_from("<4H", body, 74)
            first = 88 + joins * 24 + leaves * 4 + changes * 8
            for i in range(preemptions):
                body[first + 32 * i + 28 : first + 32 * i + 32] = bytes(4)
        elif kind == wire.DONE:
            body[8:16] = bytes(8)
        frames.append((sequence, kind, flags, bytes(body)))
    times = [0, 5, 7, 8, 9, 10]  # `head` too: the length of the hello is in it
    counts = struct.unpack("<12Q", words)
    return frames, [n for i, n in enumerate(counts) if i not in times]


def apart(seed: int, turns: int, speculative: bool, **environment) -> str:
    """In a process of its own, with the helper or without."""
    command = [sys.executable, str(Path(__file__)), str(seed), str(turns), str(int(speculative))]
    own = {"PYTHONPATH": f"{SOURCE}:{HERE}", "WHYLATE_RING_BYTES": str(64 << 20), "PYTHONHASHSEED": "0"}
    env = os.environ | own | environment
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needed
@pytest.mark.parametrize("seed, speculative", [(1, False), (2, False), (3, True)])
def test_the_frames_are_those_of_the_python(seed, speculative):
    pure, helped = (bare(apart(seed, 20_000, speculative, WHYLATE_NATIVE=on)) for on in ("off", "on"))
    assert len(pure[0]) > 40_000 and pure == helped


@needed
def test_the_helper_does_the_steady_iterations(monkeypatch):
    """Else the comparison above compares the Python with itself."""
    calls = []
    for name in "scheduled", "done":
        real = getattr(recording.Recorder, name)
        monkeypatch.setattr(recording.Recorder, name, lambda *a, real=real, name=name: calls.append(name) or real(*a))
    load = Load(1)
    for _ in range(2000):
        load.turn()
    assert 200 < calls.count("scheduled") < 1500 and 50 < calls.count("done") < 1000


@needed
def test_a_frame_of_every_length_is_the_vector():
    opened = ring.Ring("engine", "input", 1 << 20)
    for n in range(600):
        at, body = opened.at, bytes(range(256)) * 3
        opened.write(wire.NOTICE, n % 256, n, body[:n])
        expected = wire.frame(wire.NOTICE, n % 256, opened.sequence, n, body[:n])
        assert os.pread(opened.fd, len(expected), ring.HEADER + at) == expected


@needed
def test_both_have_the_same_fields():
    code = "from whylate_vllm import native, ring; print(*native.Fuse.__slots__, *native.State.__slots__, *ring.Mapped.__slots__)"
    env = os.environ | {"PYTHONPATH": str(SOURCE), "WHYLATE_NATIVE": "off"}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60).stdout.split()
    bases = native.Fuse, native.State, native.helper.Writer
    fields = [name for base in bases for name, field in vars(base).items() if inspect.ismemberdescriptor(field)]
    assert sorted(said) == sorted([*fields, "words", "map"])


# Errors inside of it.


class Steady:
    """A batch that stays the same."""

    def __init__(self, members: int = 4):
        cls = make_scheduler_class()
        engine.hook_scheduler(SimpleNamespace(Scheduler=cls))
        self.s = s = cls()
        for i in range(members):
            s.add_request(request := Request(f"r{i}", limit=1 << 40))
            s.admit(request)
            request.num_computed_tokens, request.num_tokens = 0, 1
        self.ids = list(s.requests)
        s.plan = lambda s: Output(dict.fromkeys(self.ids, 1))
        self.model = sampled(Output(dict.fromkeys(self.ids, 1)))

    def turns(self, count: int):
        for _ in range(count):
            output = self.s.schedule()
            self.s.update_from_output(output, self.model)
        return output


@needed
@pytest.mark.parametrize("field, value, point", [
    ("evicted", None, "schedule"), ("count_free", lambda: -1, "schedule"),
    ("count_free", lambda: 1 << 40, "schedule"), ("read", lambda s: 1 / 0, "schedule"), ("live", 7, "schedule"),
    ("gone", 7, "update_from_output"), ("fills", [None], "schedule"),
])  # fmt: skip
def test_an_error_inside_of_it_blows_the_fuse(caplog, field, value, point):
    steady = Steady()
    steady.turns(3)
    setattr(steady.s._whylate, field, value)
    output = steady.turns(3)
    assert len(output.num_scheduled_tokens) == 4
    assert [guard.name for guard in hooks.Guard.all if not guard.on] == [f"Scheduler.{point}"]
    (record,) = caplog.records
    assert record.getMessage().startswith(f"whylate disabled a hook after an error: Scheduler.{point}: ")
    assert steady.s._whylate.ring.words[ring.ERRORS] == 1


@needed
def test_what_is_no_error_of_ours_passes():
    steady = Steady()
    steady.turns(3)

    def interrupted(*_):
        raise KeyboardInterrupt

    steady.s._whylate.read = interrupted
    with pytest.raises(KeyboardInterrupt):
        steady.turns(1)
    assert all(guard.on for guard in hooks.Guard.all)


@needed
def test_it_looks_like_the_method_that_it_wraps():
    steady = Steady()
    method = type(steady.s).schedule
    assert method.__name__ == "schedule" and list(inspect.signature(method).parameters) == ["self", "throttle_prefills"]
    assert steady.s.schedule.__self__ is steady.s and method.whylate.name == "Scheduler.schedule"
    with pytest.raises(TypeError, match="self"):
        method()
    with pytest.raises(TypeError, match="unexpected"):
        steady.s.schedule(other=1)


@needed
def test_nothing_leaks_in_a_million_iterations():
    steady = Steady(2)
    steady.turns(50_000)
    counted, before = sys.getrefcount(None), resident()
    steady.turns(int(os.environ.get("WHYLATE_ITERATIONS") or 1_000_000))
    assert resident() - before < 256 << 10 and abs(sys.getrefcount(None) - counted) < 1000  # a byte an iteration would be seen
    assert all(guard.on for guard in hooks.Guard.all)
    id = steady.ids[0]
    assert sys.getrefcount(id) < 50


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@needed
def test_a_recorder_goes_with_its_scheduler():
    import gc
    import weakref

    steady = Steady()
    steady.turns(3)
    found = weakref.ref(steady.s._whylate)
    steady.s._whylate.ring.close()
    del steady
    gc.collect()
    assert found() is None


WATCH = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 16384)
words, torn, last, seen = memoryview(memory)[:256].cast("Q"), 0, 0, 0
print("ready", flush=True)
while words[9] < int(sys.argv[2]):
    head = words[8]
    torn += head < last or head % 64 != 0
    seen += head != last
    last = head
print(torn, seen)
"""


@needed
def test_no_reader_sees_half_a_word():
    """The head goes up in steps of 64, over many carries from byte to byte."""
    opened = ring.Ring("engine", "input", 1 << 20)
    opened.write(wire.NOTICE, 0, 1, bytes(-(opened.head + wire.OVERHEAD) % 64))
    opened.head += -opened.head % 64
    reader = subprocess.Popen([sys.executable, "-c", WATCH, opened.path, "300000"], stdout=subprocess.PIPE, text=True)
    assert reader.stdout.readline() == "ready\n"
    body = bytes(64 - wire.OVERHEAD)
    while opened.sequence < 300_000:
        opened.write(wire.NOTICE, 0, 1, body)
    torn, seen = map(int, reader.communicate(timeout=60)[0].split())
    assert torn == 0 and seen > 0


# Where it is not.


def loaded(tmp_path, module: str | None, **environment):
    """The helper's name and what is logged, with this module in the helper's place."""
    package = tmp_path / "whylate_vllm"
    package.mkdir()
    for file in (SOURCE / "whylate_vllm").glob("*.py"):
        (package / file.name).write_text(file.read_text())
    if module is not None:
        (package / "_native.py").write_text(module)
    code = (
        "import json; from whylate_vllm import identity, native\n"
        "print(json.dumps([native.NAME, identity.hello(0)['producer']]))"
    )
    env = {name: value for name, value in os.environ.items() if name != "WHYLATE_NATIVE"} | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env | environment, capture_output=True, text=True, timeout=60)
    name, producer = json.loads(done.stdout)
    assert producer["helper"] == name
    return name, done.stderr.splitlines()


def test_without_it_the_probe_says_nothing(tmp_path):
    assert loaded(tmp_path, None) == ("none", [])


def test_one_that_is_broken_is_told_in_one_line(tmp_path):
    name, (line,) = loaded(tmp_path, "raise OSError('no such\\nsymbol')")
    assert name == "none" and "no such symbol" in line and "goes on in Python" in line


def test_one_of_another_version_is_told_in_one_line(tmp_path):
    name, (line,) = loaded(tmp_path, "VERSION = 99")
    assert name == "none" and "99" in line and "goes on in Python" in line


def test_one_that_is_not_wanted_is_not_loaded(tmp_path):
    assert loaded(tmp_path, "raise SystemExit", WHYLATE_NATIVE="off") == ("none", [])


@needed
def test_another_interpreter_of_the_process_goes_on_in_python(capfd):
    interpreters = pytest.importorskip("_xxsubinterpreters")
    own = interpreters.create()
    code = (
        f"import sys; sys.path[:0] = [{str(SOURCE)!r}]\n"
        "from whylate_vllm import native, ring\n"
        "opened = ring.Ring('engine', 'input', 1 << 16); opened.close()\n"
        "print(native.NAME, opened.sequence, flush=True)"
    )
    interpreters.run_string(own, code)
    interpreters.destroy(own)
    said = capfd.readouterr()
    assert said.out == "none 2\n" and "another interpreter" in said.err


if __name__ == "__main__":
    import tempfile

    seed, turns, speculative = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WHYLATE_RING_DIR"] = folder
        print(written(seed, turns, bool(speculative)))
