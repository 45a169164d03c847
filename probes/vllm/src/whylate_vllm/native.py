"""The native helper: the steady paths in C (_native.c). Where it is not there, the Python beside it does all of it, alone."""

import os
from importlib import import_module

from .log import log

VERSION = 1  # of _native.c; another one's fields and methods may mean something else
SCHEDULE, UPDATE = 1, 2  # the methods whose wrapper it has


def switched_off() -> bool:
    return os.environ.get("WHYLATE_NATIVE", "").lower() in ("off", "0", "false", "no")


def load():
    """The module, or None. A wheel without it is as good; one that is broken is worth a line."""
    if switched_off():
        return None
    try:
        found = import_module("._native", __package__)
    except ModuleNotFoundError:
        return None
    except Exception as error:
        log.warning("whylate's native helper cannot be loaded, the probe goes on in Python: %s", " ".join(str(error).split()))
        return None
    if (version := getattr(found, "VERSION", None)) != VERSION:
        log.warning("whylate's native helper is %s where this probe needs %d, it goes on in Python", version, VERSION)
        return None
    return found


# What the helper has as fields of C, Python alone has as slots: they stand together, and when the caches are cold it is the
# number of places that costs.


class Fuse:
    __slots__ = ("on",)


class State:
    __slots__ = (
        "iteration", "digest", "spent", "stop", "irregular", "speculative", "token_budget", "seq_budget",
        "ring", "read", "count_free", "waiting", "aside", "tokens", "order", "members", "live", "gone", "prefilling", "pending",
        "preempted", "fills", "evicted", "finishes", "skips",
    )  # fmt: skip


helper = load()
NAME = f"native {VERSION}" if helper else "none"
if helper:
    Fuse, State = helper.Fuse, helper.State
