"""One rank's execution of each batch: how long it took the host and the device, in which graph mode, padded to what size."""

import threading
from collections import deque
from time import monotonic_ns

from . import hooks, wire
from .engine import forgetting
from .hooks import argument, around
from .ring import Ring
from .settings import rank

RING = 4 << 20
PENDING_MAX = 64
PEAK_EVERY = 64  # to ask for it takes as long as all the rest
UNKNOWN, NONE, PIECEWISE, FULL = range(4)
MODES = {"NONE": NONE, "PIECEWISE": PIECEWISE, "FULL": FULL}

_local = threading.local()  # .executing: the recorder of the worker that executes on this thread


class Recorder:
    """Of one worker. Device times are read when they are there, and never waited for."""

    def __init__(self, worker):
        config = worker.vllm_config
        self.rank = worker.rank
        self.device = device(worker)
        graphs = getattr(config.compilation_config, "cudagraph_mode", None)
        self.graphs = graphs is not None and graphs.name != "NONE" and not config.model_config.enforce_eager
        self.open = None  # the step that began: when, iteration, device's own mark of it
        self.shape = (UNKNOWN, 0)  # graph mode and padded size of the step under way
        self.pending = deque()  # steps that the device has not finished
        self.steps = 0
        self.ring = Ring("worker", "main", RING, rank=rank(config), abandoned=forgetting(worker), capabilities={
            "steps": True,
            "step_device": self.device is not None,
            "step_graph": any(name.rpartition(".")[2] in SHAPES for name in hooks.installed),
            "step_wait": False,
            "step_peak": self.device is not None,
        })  # fmt: skip
        for name in hooks.missing:
            self.ring.notice(2, name)

    def begin(self, entered: int, iteration: int) -> None:
        if self.open:
            self.end()
        self.shape = (UNKNOWN, 0)
        self.open = entered, iteration, self.mark()
        _local.executing = self

    def end(self) -> None:
        """Whatever of the step is still to be done is done by the device alone."""
        _local.executing = None
        if not self.open:
            return
        (entered, iteration, began), self.open = self.open, None
        self.steps += 1
        peak = self.device.max_memory_allocated() if self.device and self.steps % PEAK_EVERY == 1 else 0
        self.pending.append((entered, iteration, self.shape, began, self.mark(), monotonic_ns(), peak))
        while self.pending and (self.pending[0][4] is None or self.pending[0][4].query() or len(self.pending) > PENDING_MAX):
            self.write(*self.pending.popleft())

    def mark(self):
        if self.device is None:
            return None
        event = self.device.Event(enable_timing=True)
        event.record()
        return event

    def write(self, entered: int, iteration: int, shape, began, ended, returned: int, peak: int) -> None:
        known = ended is not None and ended.query()
        took = int(began.elapsed_time(ended) * 1e6) if known else 0
        mode, padded = shape
        eager = self.graphs and mode == NONE
        self.ring.write(wire.STEP, 0, entered, wire.step(iteration, self.rank, padded, mode, eager, returned, took, 0, peak))


def device(worker):
    """The part of torch that measures time on the worker's device, None where there is no such thing: on a CPU."""
    kind = getattr(getattr(worker, "device", None), "type", "cpu")
    if kind != "cuda":
        return None
    import torch

    return torch.cuda


def recorder(worker) -> Recorder:
    found = getattr(worker, "_whylate", None)
    if found is None:
        found = worker._whylate = Recorder(worker)
    return found


def before_execute(worker, args, kwargs):
    """The iteration's number travels with the scheduler's output; a batch without one is none of a scheduler's."""
    iteration = getattr(argument(args, kwargs, 0, "scheduler_output"), "whylate_iteration", 0)
    if iteration:
        recorder(worker).begin(monotonic_ns(), iteration)
    return iteration


def execute(worker, iteration, result, args, kwargs):
    if iteration and result is not None:  # else the tokens are sampled by a call of its own
        recorder(worker).end()


def sample(worker, entered, result, args, kwargs):
    if found := getattr(worker, "_whylate", None):
        found.end()


def shaped(mode, padded) -> None:
    found = getattr(_local, "executing", None)
    if found is not None and found.shape == (UNKNOWN, 0):  # drafts have shapes of their own, later
        found.shape = MODES.get(mode.name, UNKNOWN), padded


def determine(runner, entered, result, args, kwargs):
    shaped(result[0], result[1].num_tokens)


def dispatch(entered, result) -> None:
    shaped(result[0].cg_mode, result[0].num_tokens)


SHAPES = "_determine_batch_execution_and_padding", "dispatch_cg_and_sync_dp"


def hook_worker(module) -> None:
    around(module.Worker, "execute_model", before=before_execute, after=execute)
    around(module.Worker, "sample_tokens", after=sample)


def hook_runner(module) -> None:
    around(module.GPUModelRunner, SHAPES[0], after=determine)


def hook_second_runner(module) -> None:
    """The function is bound by name in the runner's module; whoever else has it dispatches drafts."""
    hooks.around_function(module, SHAPES[1], after=dispatch)
