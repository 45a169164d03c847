"""`python tests/bench_hot_path.py`: what the probe costs the scheduler's thread in steady decode, on stub objects.

Both wrappers, hooked minus bare, in a tight loop and at 100 iterations a second with cold caches in between; beside them one
bare write: a slice copy of prebuilt bytes and the store of a sequence. First in Python alone, then, where it can be built, with
the native helper (`native_…`). Times are the thread's own (CPU), so that a busy machine
does not count; what the clock itself costs is in the bare write's figure.
"""

import gc
import mmap
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent
BUILD = HERE.parents[2] / "scripts/probe-native.sh"
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
os.environ["WHYLATE_RING_DIR"] = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)

from stubs import Output, Request, make_scheduler_class, sampled

from whylate_vllm import engine as probe
from whylate_vllm import hooks, native, ring

TIGHT, PACED, RATE = 20_000, 600, 100


class Engine:
    """A scheduler whose own work is next to nothing: what is left is the call and the wrapper."""

    def __init__(self, running: int, hooked: bool):
        cls = make_scheduler_class()
        ids = [f"chatcmpl-{i:08x}-{i:08x}" for i in range(running)]
        # As in the engine, each step brings its own dict, with the same strings as keys.
        self.outputs = [Output(dict.fromkeys(ids, 1)) for _ in range(64)]
        self.model = sampled(self.outputs[0])
        outs = [SimpleNamespace(request_id=id, new_token_ids=[5], finish_reason=None) for id in ids]
        results = {0: SimpleNamespace(outputs=outs, timestamp=7.25)}
        cls.schedule = lambda self, throttle_prefills=False: self.next
        cls.update_from_output = lambda self, scheduler_output, model_runner_output: results
        if hooked:
            probe.hook_scheduler(SimpleNamespace(Scheduler=cls))
        self.scheduler = s = cls(seqs=running)
        for id in ids:
            request = Request(id, prompt=100, limit=1 << 30)
            s.add_request(request)
            s.admit(request, before=501)  # as `schedule()` leaves it
            request.num_tokens = 501

    def iterations(self, count: int):
        s, model, outputs = self.scheduler, self.model, self.outputs
        for i in range(count):
            s.next = output = outputs[i & 63]
            s.schedule(False)
            s.update_from_output(output, model)

    def timed(self) -> int:
        s = self.scheduler
        s.next = output = self.outputs[time.monotonic_ns() & 63]
        began = time.thread_time_ns()
        s.schedule(False)
        s.update_from_output(output, self.model)
        return time.thread_time_ns() - began


def tight(running: int) -> float:
    """The quietest round of each: what a noisy neighbour adds is not the probe's."""
    engines = Engine(running, False), Engine(running, True)
    quietest = [float("inf")] * 2
    for _ in range(TIGHT // 1280):
        for i, engine in enumerate(engines):
            engine.iterations(64)
            began = time.thread_time_ns()
            engine.iterations(1280)
            quietest[i] = min(quietest[i], (time.thread_time_ns() - began) / 1280 / 1000)
    return quietest[1] - quietest[0]


def paced(running: int) -> tuple[float, float, float]:
    """Median and mean cost of the wrappers, and of one bare write, with the caches swept between two iterations."""
    bare, hooked = Engine(running, False), Engine(running, True)
    hooked.iterations(200)
    prebuilt, trash = bytes(112), bytearray(8 << 20)
    opened = hooked.scheduler._whylate.ring
    memory = mmap.mmap(opened.fd, ring.HEADER + opened.size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
    words = memoryview(memory)[:256].cast("Q")
    costs = {"bare": [], "hooked": [], "write": []}
    due = time.perf_counter()
    for i in range(PACED):
        due += 1 / RATE
        trash[::64] = bytes(len(trash) // 64)
        time.sleep(max(due - time.perf_counter(), 0))
        turn = ("bare", "hooked", "write")[i % 3]
        if turn == "write":
            at = ring.HEADER + (i * 112) % (opened.size - 112)
            began = time.thread_time_ns()
            memory[at : at + 112] = prebuilt
            words[30] = i
            costs[turn].append(time.thread_time_ns() - began)
        else:
            costs[turn].append({"bare": bare, "hooked": hooked}[turn].timed())
    middle = {name: statistics.median(values) / 1000 for name, values in costs.items()}
    mean = (statistics.fmean(costs["hooked"]) - statistics.fmean(costs["bare"])) / 1000
    return middle["hooked"] - middle["bare"], mean, middle["write"]


def figure(name: str, value: float, budget: float | None) -> None:
    name = f"native_{name}" if native.helper else name
    verdict = f"<= {budget:g} {'ok' if value <= budget else 'over'}" if budget else "report - -"
    print(f"figure probe/{name} {value:.2f} us {verdict}", flush=True)


def measure() -> None:
    print(f"# helper: {native.NAME}", flush=True)
    gc.disable()
    for running in 16, 64, 256:
        figure(f"tight_{running}", tight(running), 15 if running == 256 else None)
    for running in 16, 64, 256:
        middle, mean, write = paced(running)
        figure(f"paced_{running}", middle, (50 if native.helper else 150) if running == 256 else None)
        figure(f"paced_{running}_mean", mean, None)
    figure("bare_write_paced", write, None)
    assert all(guard.on for guard in hooks.Guard.all), "a hook disabled itself"
    for opened in list(ring.rings):
        os.unlink(opened.path)


def main() -> None:
    print(f"# Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} processors", flush=True)
    built = subprocess.run([str(BUILD)], capture_output=True, text=True)
    subprocess.run([sys.executable, __file__, "measure"], env=os.environ | {"WHYLATE_NATIVE": "off"}, check=True)
    if built.returncode:
        print(f"# no figure of the native helper: {built.stderr.strip().splitlines()[-1]}")
        return
    environment = {name: value for name, value in os.environ.items() if name != "WHYLATE_NATIVE"}
    subprocess.run([sys.executable, __file__, "measure"], env=environment, check=True)


if __name__ == "__main__":
    measure() if sys.argv[1:] == ["measure"] else main()
