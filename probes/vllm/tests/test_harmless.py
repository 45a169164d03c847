"""Faults of every kind around the probe. In each the engine does exactly what it does without it, and one line says so.

`WHYLATE_REQUESTS=1000000 pytest tests/test_harmless.py -k grow -s` is the long run.
"""

import ast
import contextlib
import functools
import gc
import inspect
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import whole
from whole import Engine, variant

from whylate_vllm import engine, frontend, hooks, native, plugin, points, ring
from whylate_vllm.dump import decode, frames

HERE, SOURCE = Path(__file__).parent, Path(__file__).parents[1] / "src"
TURNS = 200
WITHOUT = whole.run(turns=TURNS, hooked=False)
NOBODY = 65534

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it changes its user, or mounts")


def hooking(monkeypatch, around) -> None:
    """`around` takes the place of the probe's own wherever it is used."""
    for module in [module for name, module in sys.modules.items() if name.startswith("whylate_vllm.")]:
        if hasattr(module, "around"):
            monkeypatch.setattr(module, "around", around)


def hooked() -> dict[str, tuple]:
    """Every hook point of this version of the probe, with what it calls before and after, where it is hooked by `around`."""
    functions, real, before_these = {}, hooks.around, len(hooks.Guard.all)

    def around(owner, name, before=hooks.now, after=hooks.nothing):
        functions[f"{owner.__name__}.{name}"] = before, after
        real(owner, name, before, after)

    with pytest.MonkeyPatch.context() as patch:
        hooking(patch, around)
        Engine().hook()
    return {guard.name: functions.get(guard.name, ()) for guard in hooks.Guard.all[before_these:]}


HOOKED = hooked()
NAMES = list(HOOKED)
AROUND = [name for name in NAMES if HOOKED[name]]
QUIET = {"Scheduler._update_request_as_session", "OutputProcessor.propagate_error", "KVCacheManager.pop_blocks_for_free"}


def says(caplog) -> str:
    """The one line that the probe has logged."""
    assert len(caplog.records) == 1, caplog.text
    return caplog.records[0].getMessage()


def notices() -> list[str]:
    said = [decode(frame) for opened in ring.rings for frame in frames(opened.path)]
    return [f"{message['fields']['code']} {message['fields']['text']}" for message in said if message["message"] == "notice"]


def alone(mount="", user=0, turns=TURNS, **environment):
    """The engine in a process of its own: what it did, and the lines that it logged. `mount` is done in its own namespace."""
    command = [sys.executable, str(HERE / "whole.py"), "1", str(turns), *(["--user", str(user)] if user else [])]
    if mount:
        command = ["unshare", "--mount", "sh", "-e", "-c", mount + '; exec "$@"', "sh", *command]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=120)
    if mount and done.returncode and ("unshare" in done.stderr or "mount:" in done.stderr):
        pytest.skip(f"this machine lets nobody mount: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr.splitlines()


def refused(result, *words):
    """It did what it does without the probe, opened no ring, and said why in one line."""
    said, lines = result
    assert said == {"digest": WITHOUT, "rings": []}
    (line,) = lines
    assert line.startswith("whylate records nothing in this process: no ring in ") and "check" in line
    assert all(word in line for word in words), line


def test_with_all_hooks_it_does_what_it_does_without(caplog):
    assert whole.run(turns=TURNS) == WITHOUT and not caplog.records
    assert whole.run(seed=2, turns=TURNS) != WITHOUT  # the comparison can fail
    written = {decode(frame)["message"] for opened in ring.rings for frame in frames(opened.path)}
    assert written >= {"received", "last_byte", "submitted", "answered", "delivered", "arrived", "queued", "scheduled", "done"}


# The directory.


def test_a_missing_directory_is_made(tmp_path):
    said, lines = alone(WHYLATE_RING_DIR=str(tmp_path / "a/b"))
    assert said["digest"] == WITHOUT and len(said["rings"]) >= 3 and not lines
    assert all(os.path.exists(path) for path in said["rings"])


@pytest.fixture
def open_path(tmp_path):
    """Others may come as far as here."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    return tmp_path


@root
def test_a_directory_that_cannot_be_made(open_path):
    refused(alone(user=NOBODY, WHYLATE_RING_DIR=str(open_path / "rings")), "Permission denied")


@root
def test_a_read_only_directory(open_path):
    folder = open_path / "rings"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o555)
    refused(alone(user=NOBODY, WHYLATE_RING_DIR=str(folder)), "Permission denied")


@root
def test_a_directory_of_another_owner(open_path):
    folder = open_path / "rings"
    folder.mkdir(mode=0o700)
    refused(alone(user=NOBODY, WHYLATE_RING_DIR=str(folder)), "Permission denied")


@root
def test_a_read_only_file_system(tmp_path):
    mount = f"mount -t tmpfs -o ro none {tmp_path}"
    refused(alone(mount, WHYLATE_RING_DIR=str(tmp_path / "rings")), "Read-only")


@root
def test_a_full_tmpfs(tmp_path):
    mount, folder = f"mount -t tmpfs -o size=1m none {tmp_path}", str(tmp_path / "rings")
    refused(alone(mount, WHYLATE_RING_DIR=folder, WHYLATE_RING_BYTES="15728640"), "No space left")


@root
def test_a_tmpfs_with_room_for_the_first_ring_only(tmp_path):
    """The second cannot be had: the first says so to its reader, and none is half written."""
    kept = tmp_path / "kept"
    kept.mkdir()
    mount = f"mkdir {tmp_path}/m; mount -t tmpfs -o size=1500k none {tmp_path}/m"
    script = f'{mount}; "$@"; cp {tmp_path}/m/* {kept}'
    command = ["unshare", "--mount", "sh", "-e", "-c", script, "sh", sys.executable, str(HERE / "whole.py"), "1", str(TURNS)]
    environment = os.environ | {"WHYLATE_RING_DIR": str(tmp_path / "m"), "WHYLATE_RING_BYTES": "1048576"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    if done.returncode and ("unshare" in done.stderr or "mount:" in done.stderr):
        pytest.skip(f"this machine lets nobody mount: {done.stderr.strip()}")
    assert json.loads(done.stdout)["digest"] == WITHOUT
    (line,) = done.stderr.splitlines()
    (only,) = kept.iterdir()
    last = decode(frames(str(only))[-1])
    assert "No space left" in line and last["message"] == "notice" and "No space left" in last["fields"]["text"]


@pytest.mark.parametrize("value", ["fifteen", "1e6", "9" * 30, str(1 << 60)])
def test_a_size_that_cannot_be(monkeypatch, caplog, value):
    monkeypatch.setenv("WHYLATE_RING_BYTES", value)
    assert whole.run(turns=TURNS) == WITHOUT and not ring.rings
    assert says(caplog).startswith("whylate records nothing in this process: no ring in ")


# The files.


def squat(path: str, kind: str) -> None:
    """Another process takes the name."""
    how = {"file": "echo mine > {0}", "directory": "mkdir {0}", "pipe": "mkfifo {0}", "link": "ln -s /nowhere {0}"}[kind]
    subprocess.run(["sh", "-e", "-c", how.format(path)], check=True)


@pytest.mark.parametrize("kind", ["file", "directory", "pipe", "link"])
def test_another_process_has_the_name(tmp_path, caplog, kind):
    (tmp_path / "rings").mkdir()
    path = ring.name("engine", "scheduler")
    squat(path, kind)
    assert whole.run(turns=TURNS) == WITHOUT
    assert "File exists" in says(caplog) and os.path.lexists(path)
    assert [said.split(":")[0] for said in notices()] == ["1 no ring in " + str(tmp_path / "rings")]
    assert kind != "file" or Path(path).read_text() == "mine\n"
    assert {file.suffix for file in (tmp_path / "rings").iterdir()} == {".ring"}  # no draft is left


def half_way(act, turns=TURNS):
    """`act` is done to the scheduler's ring between two halves of a run, and the next clock is due."""
    running = Engine().hook().start(1).turns(turns // 2)
    opened = running.scheduler._whylate.ring
    act(opened)
    opened.due = 0
    return running.turns(turns - turns // 2), opened


def test_a_ring_that_is_deleted_underneath(caplog):
    running, opened = half_way(lambda opened: os.unlink(opened.path))
    assert running.digest() == WITHOUT
    assert says(caplog).startswith(f"whylate's ring {opened.path} was deleted")
    head = opened.head
    opened.due = 0
    assert running.turns(20) and opened.head > head  # who has it open still reads it
    says(caplog)


def test_the_whole_directory_is_deleted_underneath(caplog):
    running, opened = half_way(lambda opened: subprocess.run(["rm", "-r", os.path.dirname(opened.path)], check=True))
    assert running.digest() == WITHOUT and opened.path in says(caplog)


def test_a_ring_that_is_cut_while_nothing_is_written(caplog):
    """Its pages are gone; a write to them would end the engine. It is seen before the first write after a pause."""
    running, opened = half_way(lambda opened: os.truncate(opened.path, 4096))
    assert running.digest() == WITHOUT
    assert f"{opened.path} was cut to 4096 of " in says(caplog)
    assert not any(guard.on for guard in hooks.Guard.all) and opened not in ring.rings
    assert len(notices()) <= 1  # in the ring that this thread opened last, unless it was this one
    assert all(other.words[ring.ERRORS] == 1 for other in ring.rings)


def cut_while_writing() -> None:
    import faulthandler
    import resource

    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    running = Engine().hook().start(1).turns(10)
    os.truncate(running.scheduler._whylate.ring.path, 0)
    running.turns(10)


def died_of_a_cut() -> bool:
    child = multiprocessing.get_context("fork").Process(target=cut_while_writing)
    child.start()
    child.join(60)
    assert child.exitcode in (0, -signal.SIGBUS)
    return child.exitcode != 0


@pytest.mark.xfail(
    native.helper is None, strict=True, reason="docs/probe.md: without the native helper nothing but its mode protects a ring"
)
def test_a_ring_that_is_cut_while_it_is_written():
    assert not died_of_a_cut()


@pytest.mark.skipif(native.helper is None, reason="the native helper is not there")
@pytest.mark.parametrize("left", [0, 100, 4096, ring.HEADER + 4096, ring.HEADER + (1 << 20) - 8])
def test_the_native_helper_sees_a_cut_at_the_next_record(caplog, left):
    """However much is left, and no clock is due."""
    running = Engine().hook().start(1).turns(TURNS // 2)
    opened = running.scheduler._whylate.ring
    os.truncate(opened.path, left)
    head = opened.head
    assert running.turns(TURNS - TURNS // 2).digest() == WITHOUT
    assert f"{opened.path} was cut to {left} of " in says(caplog) and opened.head == head
    assert not any(guard.on for guard in hooks.Guard.all) and opened not in ring.rings
    assert os.path.getsize(opened.path) == left  # it has not grown again


@pytest.mark.skipif(native.helper is None, reason="the native helper is not there")
@pytest.mark.parametrize("after", range(4))
def test_a_write_that_fails_or_falls_short(after):
    """No file may grow beyond the limit: each of a record's writes meets it."""
    script = (
        "import resource, sys; sys.path[:0] = sys.argv[2:]\n"
        "from whole import Engine\n"
        "from whylate_vllm import hooks\n"
        "running = Engine().hook().start(1).turns(100)\n"
        "opened = running.scheduler._whylate.ring\n"
        "limit = [0, 70, 16384, 16384 + opened.at + 8][int(sys.argv[1])]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
        "print(running.turns(100).digest(), [guard.name for guard in hooks.Guard.all if not guard.on])"
    )
    command = [sys.executable, "-c", script, str(after), str(HERE), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    digest, blown = done.stdout.split(" ", 1)
    assert digest == WITHOUT and "Scheduler.schedule" in blown
    assert "whylate disabled a hook after an error: Scheduler.schedule: OSError" in done.stderr


@root
def test_another_user_can_neither_cut_nor_delete_a_ring(open_path):
    """This is what protects it."""
    running = Engine().hook().start(1).turns(10)
    path = running.scheduler._whylate.ring.path
    try_all = (
        "import os, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "acts = [lambda p: open(p, 'r+b'), lambda p: open(p, 'rb'), lambda p: os.truncate(p, 0)]\n"
        "for act in (*acts, os.unlink, lambda p: os.rename(p, p + 'x')):\n"
        "    try: act(sys.argv[1])\n"
        "    except PermissionError: continue\n"
        "    raise SystemExit('it could')"
    )
    for mode in 0o700, 0o755:  # the directory that the probe makes, and one that anybody may look into
        os.chmod(os.path.dirname(path), mode)
        subprocess.run([sys.executable, "-c", try_all, path], check=True)


# Errors of our own.


def raising(*_):
    raise RuntimeError("of our own making")


def break_hook(monkeypatch, point: str, when: str) -> None:
    """The probe's own code at this point raises, before or after vLLM's."""
    real = hooks.around

    def around(owner, name, before=hooks.now, after=hooks.nothing):
        if f"{owner.__name__}.{name}" == point:
            before, after = (raising, after) if when == "before" else (before, raising)
        real(owner, name, before, after)

    hooking(monkeypatch, around)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", AROUND)
def test_an_error_inside_each_hook(monkeypatch, caplog, point, when):
    break_hook(monkeypatch, point, when)
    assert whole.run(turns=TURNS) == WITHOUT
    said = notices()
    if point in QUIET:  # nothing in this load calls it
        assert not said and not caplog.records
        return
    error = f"{point}: RuntimeError: of our own making (test_harmless.py:"
    assert says(caplog).startswith(f"whylate disabled a hook after an error: {error}")
    assert len(said) <= 1 and all(one.startswith(f"1 {point}: RuntimeError") for one in said)
    assert [guard.name for guard in hooks.Guard.all if not guard.on] == [point]
    assert sum(opened.words[ring.ERRORS] for opened in ring.rings) == len(said)


@pytest.mark.parametrize("owner, name, point", [
    (frontend, "answered", "RequestState.make_request_output"), (frontend, "watch", "vllm.build_app"),
    (frontend.Exchange, "__init__", "ASGI"), (frontend.Exchange, "sent", "ASGI"), (frontend.Exchange, "end", "ASGI"),
])  # fmt: skip
def test_an_error_inside_each_of_the_other_hooks(monkeypatch, caplog, owner, name, point):
    monkeypatch.setattr(owner, name, raising)
    assert whole.run(turns=TURNS) == WITHOUT
    assert says(caplog).startswith(f"whylate disabled a hook after an error: {point}: RuntimeError") and len(notices()) <= 1


def test_an_error_that_cannot_be_told(monkeypatch, caplog):
    """Neither its words, nor the log, nor the ring are to be relied upon."""

    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("not even this")

    def mute(*_):
        raise Mute

    monkeypatch.setattr(engine, "schedule", mute)
    assert whole.run(turns=TURNS) == WITHOUT
    monkeypatch.setattr(hooks.log, "warning", raising)
    monkeypatch.setattr(ring.Ring, "failed", raising)
    monkeypatch.setattr(engine, "schedule", raising)
    assert whole.run(turns=TURNS) == WITHOUT


# Other versions of vLLM.


def missed(caplog) -> set[str]:
    """The hook points that the log says are missing, each in one line."""
    lines = [record.getMessage().removeprefix("whylate misses a hook point in this vLLM: ") for record in caplog.records]
    assert lines == hooks.missing
    points = [".".join(line.split(":")[0].split(".")[-2:]) for line in lines]
    assert len(set(points)) == len(points)
    return set(points)


INSTEAD = {  # what an older vLLM has in its place, which is missed too
    "Scheduler._get_local_prefix_cache_hit": "KVCacheManager.get_computed_blocks",
    "KVCacheManager.pop_blocks_for_free": None,
    "Serving._check_model": "vllm",
}


@pytest.mark.parametrize("point", NAMES)
def test_a_hook_point_is_renamed(caplog, point):
    name = point.split(".")[1]
    engine = variant(name, "renamed").hook()
    assert engine.start(1).turns(TURNS).digest() == WITHOUT
    gone = {p for p in NAMES if p.split(".")[1] == name}  # two classes have an `add_request`
    assert missed(caplog) == {INSTEAD.get(p, p) for p in gone} - {None}
    assert set(notices()) == {f"2 {what}" for what in hooks.missing} and all(guard.on for guard in hooks.Guard.all)


@pytest.mark.parametrize("point", NAMES)
def test_a_hook_point_has_a_parameter_more(caplog, point):
    engine = variant(point.split(".")[1], "last").hook()
    assert engine.start(1).turns(TURNS).digest() == WITHOUT
    assert not caplog.records and all(guard.on for guard in hooks.Guard.all)


@pytest.mark.parametrize("point", NAMES)
def test_a_hook_point_has_another_parameter_first(caplog, point):
    """It is not hooked if the probe would read the wrong one."""
    name = point.split(".")[1]
    engine = variant(name, "first").hook()
    assert engine.start(1).turns(TURNS).digest() == WITHOUT
    assert missed(caplog) == {p for p in NAMES if p.split(".")[1] == name and p in points.READS}
    assert all(guard.on for guard in hooks.Guard.all)


def test_the_parameters_that_are_checked_are_those_that_are_read():
    """points.READS against every `argument(args, kwargs, place, "name")` of the hooks."""
    functions = HOOKED | {
        "RequestState.make_request_output": (frontend.hook_make_request_output,),
        "BlockPool._maybe_evict_cached_block": (engine.hook_evict,),
    }
    del functions["Serving._check_model"]  # of classes of many names
    for point, used in functions.items():
        calls = [node for f in used for node in ast.walk(ast.parse(inspect.getsource(f))) if isinstance(node, ast.Call)]
        read = {(c.args[2].value, c.args[3].value) for c in calls if getattr(c.func, "id", "") == "argument"}
        assert {(i, name) for i, name in enumerate(points.READS.get(point, ())) if name} == read, point


def test_a_module_that_is_not_there_any_more(tmp_path):
    """The scheduler has moved: nothing would ever say that it is not seen."""
    for name in plugin.HOOKS:
        file = tmp_path / (name.replace(".", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        if "scheduler" not in name:
            file.touch()
    for folder in {file.parent for file in tmp_path.rglob("*.py")} | {tmp_path / "vllm", tmp_path / "vllm/v1"}:
        (folder / "__init__.py").touch()
    code = "import whylate_vllm; whylate_vllm.register(); from whylate_vllm import hooks; print(hooks.missing)"
    environment = os.environ | {"PYTHONPATH": f"{SOURCE}:{tmp_path}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "['vllm.v1.core.sched.scheduler']\n"
    assert done.stderr == "whylate misses a hook point in this vLLM: vllm.v1.core.sched.scheduler\n"


# Processes, and others in the same one.


def test_a_forked_child_writes_to_rings_of_its_own(tmp_path):
    running = Engine().hook().start(1).turns(TURNS // 2)
    heads = {opened.path: opened.head for opened in ring.rings}
    reading, writing = os.pipe()
    if not (child := os.fork()):
        with contextlib.suppress(BaseException):
            said = {"digest": running.turns(TURNS - TURNS // 2).digest(), "rings": [opened.path for opened in ring.rings]}
            os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = json.loads(os.read(reading, 1 << 16))
    assert said["digest"] == WITHOUT and {opened.path: opened.head for opened in ring.rings} == heads
    assert len(said["rings"]) >= 3 and all(f"-{child}-" in path and frames(path) for path in said["rings"])
    assert running.turns(TURNS - TURNS // 2).digest() == WITHOUT


def spawned(queue) -> None:
    queue.put((whole.run(turns=TURNS), [(opened.path, decode(frames(opened.path)[0])["fields"]) for opened in ring.rings]))


def test_a_spawned_child_does_too(monkeypatch):
    monkeypatch.setenv("WHYLATE_INCARNATION", "0123456789abcdef")
    assert whole.run(turns=TURNS) == WITHOUT
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=spawned, args=(queue,))
    child.start()
    digest, opened = queue.get(timeout=60)
    child.join(60)
    assert digest == WITHOUT and len(opened) >= 3
    assert all(f"-{child.pid}-" in path and hello["engine"]["incarnation"] == "0123456789abcdef" for path, hello in opened)


class Other:
    """Another plugin, on the same methods, as careful or careless as they come."""

    def __init__(self, wraps: bool):
        self.calls, self.wraps = 0, wraps

    def put_on(self, module) -> None:
        for owner, name in [
            (module.Scheduler, "schedule"), (module.Scheduler, "update_from_output"), (module.Scheduler, "add_request"),
            (module.Scheduler, "_preempt_request"), (module.OutputProcessor, "process_outputs"), (module, "build_app"),
        ]:  # fmt: skip
            setattr(owner, name, self.wrapper(getattr(owner, name)))

    def wrapper(self, original):
        def method(*args, **kwargs):
            self.calls += 1
            return original(*args, **kwargs)

        return functools.wraps(original)(method) if self.wraps else method


@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize("order", ["before", "after", "both"])
def test_another_plugin_beside_it(caplog, order, wraps):
    other, made = Other(wraps), Engine()
    if order != "after":
        other.put_on(made.module)
    made.hook()
    if order != "before":
        other.put_on(made.module)
        frontend.hook_build_app(made.module)  # vLLM binds the name in a second module, which is hooked later
    running = made.start(1).turns(TURNS)
    assert running.digest() == WITHOUT and other.calls and not caplog.records
    messages = [decode(frame)["message"] for opened in ring.rings for frame in frames(opened.path)]
    assert messages.count("received") == messages.count("submitted") == messages.count("arrived") == running.count
    assert messages.count("scheduled") == messages.count("done") == TURNS


def test_the_probe_twice(caplog):
    made = Engine().hook().hook()
    assert made.start(1).turns(TURNS).digest() == WITHOUT and not caplog.records
    messages = [decode(frame)["message"] for opened in ring.rings for frame in frames(opened.path)]
    assert messages.count("scheduled") == TURNS


# Time.


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_nothing_grows_over_many_requests(capsys):
    """Memory after a tenth of the requests and after all. Twenty bytes a request would be seen, two in the long run."""
    wanted = int(os.environ.get("WHYLATE_REQUESTS") or 100_000)
    running = Engine().hook().start(1)
    running.rng.randrange, sizes = (lambda low, high=None: 1), []  # the shortest requests
    for part in range(1, 11):
        while running.count < wanted * part // 10:
            running.turn(arrivals=0.85)
            running.trace.clear()
            if len(running.scheduler.waiting) > 50:
                running.turn(arrivals=0)
        gc.collect()
        sizes.append(resident())
    recorder, front = running.scheduler._whylate, frontend.recorder()
    with capsys.disabled():
        mib = [round(size / 2**20, 1) for size in sizes]
        print(f"\n{running.count} requests, {recorder.iteration} iterations, resident MiB: {mib}")
    assert sizes[-1] - sizes[0] < 2 << 20, sizes
    assert len(recorder.live) == len(running.scheduler.requests) and len(front.handles) == len(running.processor.request_states)
    assert len(recorder.gone) < 100 and len(recorder.pending) < 10 and front.http == running.count
    assert all(guard.on for guard in hooks.Guard.all)
