"""Wrapping vLLM's methods so that nothing of ours can ever reach vLLM."""

import functools
import logging
import os
import sys
from time import monotonic_ns

from .ring import Refused, mine

log = logging.getLogger("whylate_vllm")
if not log.level:
    log.setLevel(logging.WARNING)  # vLLM's API server raises the root's level to errors only

installed: set[str] = set()
missing: list[str] = []


class Guard:
    """One hook's fuse: the first error of our own blows it, and vLLM's method goes on alone."""

    all: list["Guard"] = []
    refused = False  # no ring can be had in this process

    def __init__(self, name: str):
        self.name, self.on = name, not Guard.refused
        Guard.all.append(self)

    def blow(self, error: Exception) -> None:
        if isinstance(error, Refused):
            Guard.refused = True
            for guard in Guard.all:
                guard.on = False
            log.warning("whylate records nothing in this process: %s", error)
            return
        self.on = False
        words = f"{self.name}: {type(error).__name__}: {error} ({place(error)})"
        log.warning("whylate disabled a hook after an error: %s", words)
        try:
            mine.ring.failed(words)
        except Exception:
            pass  # there may be no ring yet; the log line stands


def place(error: Exception) -> str:
    """File and line where it was raised: a log line should be one line."""
    trace = error.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def now(self, args, kwargs) -> int:
    return monotonic_ns()


def nothing(self, state, result, args, kwargs) -> None:
    pass


def around(owner: type, name: str, before=now, after=nothing) -> None:
    """`before(self, args, kwargs)` gives a state, which `after(self, state, result, args, kwargs)` gets with the result."""
    original = getattr(owner, name, None)
    guard = claim(owner, name, original)
    if guard is None:
        return

    @functools.wraps(original)
    def wrapper(self, *args, **kwargs):
        state = None
        if guard.on:
            try:
                state = before(self, args, kwargs)
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
    if original is None:
        missing.append(f"{getattr(owner, '__module__', '')}.{owner.__name__}.{name}".lstrip("."))
        log.warning("whylate finds no %s in this vLLM", missing[-1])
    if original is None or hasattr(original, "whylate"):
        return None
    return Guard(f"{owner.__name__}.{name}")


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
            log.warning("whylate cannot hook %s: %s", module.__name__, error)

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
