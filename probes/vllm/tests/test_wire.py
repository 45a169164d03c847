"""The writer against the vectors that the Go codec is tested with, byte for byte."""

import json
import struct
from pathlib import Path

import pytest

from whylate_vllm import wire
from whylate_vllm.dump import decode

VECTORS = Path(__file__).parents[3] / "wire/testdata/vectors.json"


def number(value):
    return int(value) if isinstance(value, str) else value


def hashes(values):
    return b"".join(struct.pack("<Q", number(value)) for value in values)


def packed(entry: struct.Struct, records, *names):
    return b"".join(entry.pack(*(record[name] for name in names)) for record in records)


def lists(f):
    return (
        packed(wire.JOIN, f["joins"], "handle", "tokens", "before", "total", "cached", "kind"),
        b"".join(map(wire.LEAVE.pack, f["leaves"])),
        packed(wire.CHANGE, f["changes"], "handle", "tokens"),
        packed(
            wire.PREEMPTION, f["preemptions"],
            "victim", "preemptor", "lost", "output", "free", "blocks", "cause", "time_delta",
        ),
        packed(wire.SKIP, f["skips"], "handle", "reason", "code"),
        packed(wire.HOLDER, f["holders"], "handle", "blocks", "weight"),
        packed(wire.DRAFT, f["drafts"], "handle", "tokens"),
    )  # fmt: skip


def values(f, *without):
    return [value for name, value in f.items() if name not in without]


BODY = {
    wire.HELLO: wire.hello,
    wire.CLOCK: lambda f: wire.clock(*map(number, f.values())),
    wire.RECEIVED: lambda f: wire.received(*f.values()),
    wire.SUBMITTED: lambda f: wire.submitted(*f.values()),
    wire.FIRST_BYTE: lambda f: wire.first_byte(*f.values()),
    wire.LAST_BYTE: lambda f: wire.last_byte(*map(number, f.values())),
    wire.ANSWERED: lambda f: wire.answered(*f.values()),
    wire.DELIVERED: lambda f: wire.delivered(*f.values()),
    wire.ARRIVED: lambda f: wire.arrived(*f.values()),
    wire.QUEUED: lambda f: wire.queued(*f.values()),
    wire.HASHES: lambda f: wire.hashes(f["handle"], f["first"], hashes(f["hash"])),
    wire.SCHEDULED: lambda f: wire.scheduled(*map(number, list(f.values())[:16]), *lists(f)),
    wire.DONE: lambda f: wire.done(
        f["iteration"], f["returned"], f["key"], f["tokens"],
        packed(wire.EMIT, f["emits"], "handle", "tokens", "discarded"),
        packed(wire.FINISH, f["finishes"], "handle", "reason", "output"),
    ),
    wire.FINISHED: lambda f: wire.finished(*f.values()),
    wire.CACHE: lambda f: wire.cache(f["handle"], f["first"], f["n"], hashes(f["hash"])),
    wire.STEP: lambda f: wire.step(*map(number, f.values())),
    wire.NOTICE: lambda f: wire.notice(*f.values()),
    wire.LABELS: lambda f: wire.labels(*map(number, f.values())),
}  # fmt: skip


def vectors():
    return [v for v in json.loads(VECTORS.read_text()) if v["type"] in BODY] if VECTORS.exists() else []


def test_the_vectors_cover_every_message_of_the_probe():
    if not VECTORS.exists():
        pytest.skip(f"{VECTORS} does not exist")
    assert {v["type"] for v in vectors()} == set(BODY)


@pytest.mark.parametrize("vector", vectors(), ids=lambda v: v["name"])
def test_the_frame_is_the_vector(vector):
    body = BODY[vector["type"]](vector["fields"])
    frame = wire.frame(vector["type"], vector["flags"], vector["sequence"], vector["time"], body)
    assert frame.hex() == vector["hex"]


def plain(value):
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, int) and abs(value) > 1 << 53 else value


@pytest.mark.parametrize("vector", vectors(), ids=lambda v: v["name"])
def test_dump_reads_the_vector(vector):
    seen = decode(bytes.fromhex(vector["hex"]))
    assert [seen[name] for name in ("type", "flags", "sequence", "time")] == [
        vector[name] for name in ("type", "flags", "sequence", "time")
    ]
    assert (seen["fields"] if vector["type"] == wire.HELLO else plain(seen["fields"])) == vector["fields"]


def test_a_long_string_is_cut_at_a_character():
    assert wire.text("é" * 600) == (1024).to_bytes(2, "little") + "é".encode() * 512
    assert wire.text("a" + "é" * 600) == (1023).to_bytes(2, "little") + b"a" + "é".encode() * 511
    assert wire.text("\ud800") == b"\x01\0?"
