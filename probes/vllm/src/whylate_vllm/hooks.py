"""Wrapping vLLM's methods so that nothing of ours can ever reach vLLM."""

import functools
import os
import sys
from contextlib import suppress
from time import monotonic_ns

from . import native, points
from .log import log
from .ring import Refused, mine, rings

installed: set[str] = set()
missing: list[str] = []  # what this vLLM does not have, or not as the probe reads it


class Guard(native.Fuse):
    """One hook's fuse: the first error of our own blows it, and vLLM's method goes on alone."""

    all: list["Guard"] = []
    refused = False  # no ring can be had in this process

    def __init__(self, name: str, original=None):
        self.name, self.original, self.on = name, original, not Guard.refused
        Guard.all.append(self)

    def blow(self, error: Exception) -> None:
        """Says so once, in the log and in this thread's ring. Never raises, whatever error, log and ring are like."""
        self.on = False
        with suppress(Exception):
            if isinstance(error, Refused):
                self.refuse(error)
            else:
                words = " ".join(f"{self.name}: {type(error).__name__}: {error} ({place(error)})".split())
                tell("whylate disabled a hook after an error", words)

    def refuse(self, error: Refused) -> None:
        """Without one of its rings the probe stays out of the process: half a record would be read as a whole one."""
        for guard in Guard.all:
            guard.on = False
        if not Guard.refused:
            Guard.refused = True
            for ring in [ring for ring in rings if ring is not getattr(mine, "ring", None)]:
                with suppress(Exception):
                    ring.erred()
            tell("whylate records nothing in this process", str(error))


def tell(what: str, words: str) -> None:
    with suppress(Exception):
        log.warning("%s: %s", what, words)
    with suppress(Exception):  # there may be no ring yet; the log line stands
        mine.ring.failed(words)


def place(error: Exception) -> str:
    """File and line where it was raised: a log line should be one line."""
    trace = error.__traceback__
    if trace is None:
        return "the native helper"
    while trace.tb_next:
        trace = trace.tb_next
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def now(self, args, kwargs) -> int:
    return monotonic_ns()


def nothing(self, state, result, args, kwargs) -> None:
    pass


STEADY: dict[tuple, int] = {}  # (before, after): the point that the native helper knows by it


def around(owner: type, name: str, before=now, after=nothing) -> None:
    """`before(self, args, kwargs)` gives a state, which `after(self, state, result, args, kwargs)` gets with the result. A pair
    that is in STEADY calls both only where it must, if there is a native helper."""
    original = getattr(owner, name, None)
    guard = claim(owner, name, original)
    if guard is None:
        return

    point = STEADY.get((before, after))
    if native.helper and point:
        hook = native.helper.Hook(guard, original, before, after, point)
        return replace(owner, name, functools.update_wrapper(hook, original), guard)

    @functools.wraps(original)
    def wrapper(self, *args, **kwargs):
        state = None
        if guard.on:
            try:
                state = monotonic_ns() if before is now else before(self, args, kwargs)
            except Exception as error:
                guard.blow(error)
        result = original(self, *args, **kwargs)
        if guard.on:
            try:
                after(self, state, result, args, kwargs)
            except Exception as error:
                guard.blow(error)
        return result

    replace(owner, name, wrapper, guard)


def around_function(module, name: str, after) -> None:
    """`after(entered, result)` of a function that the module calls by this name."""
    original = getattr(module, name, None)
    guard = claim(module, name, original)
    if guard is None:
        return

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        entered = monotonic_ns()
        result = original(*args, **kwargs)
        if guard.on:
            try:
                after(entered, result)
            except Exception as error:
                guard.blow(error)
        return result

    replace(module, name, wrapper, guard)


def claim(owner, name: str, original) -> Guard | None:
    """The guard for a new hook; None where it exists already or this vLLM has no such thing."""
    point = f"{owner.__name__}.{name}"
    where = f"{getattr(owner, '__module__', '')}.{point}".lstrip(".")
    if original is None:
        lacks(where)
    elif not hasattr(original, "whylate"):
        if not (differs := points.differs(point, original)):
            return Guard(point, original)
        lacks(f"{where}: {differs}")
    return None


def lacks(what: str) -> None:
    if what not in missing:  # once, in however many modules it should be
        missing.append(what)
        log.warning("whylate misses a hook point in this vLLM: %s", what)


def replace(owner, name: str, wrapper, guard: Guard) -> None:
    wrapper.whylate = guard
    setattr(owner, name, wrapper)
    installed.add(guard.name)


def argument(args, kwargs, index: int, name: str):
    return args[index] if index < len(args) else kwargs.get(name)


class WhenImported:
    """Patches a module as soon as it is imported, or now if it is. A module that nobody imports costs nothing."""

    def __init__(self, patches: dict):
        self.patches = patches
        for name in [name for name in patches if name in sys.modules]:
            self.patch(sys.modules[name])
        sys.meta_path.insert(0, self)

    def patch(self, module) -> None:
        patch = self.patches.pop(module.__name__, None)
        try:
            if patch:
                patch(module)
        except Exception as error:
            lacks(f"{module.__name__}: {error}")

    def find_spec(self, name, path=None, target=None):
        if name not in self.patches:
            return None
        for finder in sys.meta_path:
            find = finder is not self and getattr(finder, "find_spec", None)
            if find and (spec := find(name, path, target)):
                break
        else:
            return None
        try:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                self.patch(module)

            spec.loader.exec_module = exec_module
        except Exception as error:
            log.warning("whylate cannot hook %s: %s", name, error)
        return spec
