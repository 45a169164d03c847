"""The bytes of a frame, as docs/formats/stream.md defines them. Nothing else knows the layout."""

import json
from struct import Struct
from zlib import crc32

PROTOCOL = (1, 1)
MAGIC = 0x4C57
FRAME_MAX = 1 << 20

HELLO, CLOCK, RECEIVED, SUBMITTED, FIRST_BYTE, LAST_BYTE, ANSWERED, DELIVERED = range(1, 9)
ARRIVED, QUEUED, HASHES, SCHEDULED, DONE, FINISHED, CACHE = range(9, 16)
STEP, NOTICE, LABELS = 21, 22, 23

SAME = 1  # delivered
REPEAT, UPDATE = 1, 2  # queued
FULL, SKIPS = 1, 2  # scheduled
FILLED, EVICTED, RESET, COPIED = 1, 2, 3, 4  # cache

HASHES_MAX = 4096
STRING_MAX = 1024
U16, U32, U64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
MIX = 0x9E3779B97F4A7C15

HEAD = Struct("<IQqHBB")  # after the checksum: length, sequence, time, magic, type, flags
OVERHEAD = 4 + HEAD.size

JOIN = Struct("<5IB3x")
LEAVE = Struct("<I")
CHANGE = DRAFT = Struct("<II")
PREEMPTION = Struct("<6IB3xI")
SKIP = Struct("<IBBxx")
HOLDER = Struct("<IIf")
EMIT = Struct("<IHH")
FINISH = Struct("<IB3xI")

_CLOCK = Struct("<qqq")
_FIRST_BYTE = Struct("<IHxx")
_LAST_BYTE = Struct("<IHBxIQQq")
_SUBMITTED = Struct("<IIII")
_ANSWERED = Struct("<IBBxxI")
_DELIVERED = Struct("<dqII")
_QUEUED = Struct("<IIIiqdHHhhI")
_WALL = Struct("<d")
_HTTP = Struct("<I")
_HASHES = Struct("<III")
_SCHEDULED = Struct("<QQqQ10I2B7H")
_DONE = Struct("<QqdIHH")
_CACHE = Struct("<IIII")
_STEP = Struct("<QIIBBxxqQQQ")
_NOTICE = Struct("<Hxx")
_LABELS = Struct("<I4xQQQ")


def frame(kind: int, flags: int, sequence: int, time: int, body: bytes) -> bytes:
    size = len(body) + OVERHEAD + 7 & ~7
    rest = HEAD.pack(size, sequence, time, MAGIC, kind, flags) + body.ljust(size - OVERHEAD, b"\0")
    return crc32(rest).to_bytes(4, "little") + rest


def text(value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    if len(data) > STRING_MAX:
        data = data[:STRING_MAX].decode("utf-8", "ignore").encode("utf-8")
    return len(data).to_bytes(2, "little") + data


def clamp(value: int, low: int, high: int) -> int:
    """Clients choose some numbers; none of them may break a frame."""
    return low if value < low else high if value > high else value


def mark(handle: int) -> int:
    """What one member adds to a batch's digest."""
    return handle * MIX & U64


def hello(content: dict) -> bytes:
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return body + b" " * (-(len(body) + OVERHEAD) % 8)


def clock(before: int, realtime: int, after: int) -> bytes:
    return _CLOCK.pack(before, realtime, after)


def received(http: int, request_id: str, traceparent: str, path: str) -> bytes:
    return _HTTP.pack(http) + text(request_id) + text(traceparent) + text(path)


def submitted(http: int, handle: int, index: int, prompt: int, id: str, external: str, parent: str) -> bytes:
    return _SUBMITTED.pack(http, handle, index, prompt) + text(id) + text(external) + text(parent)


def first_byte(http: int, status: int) -> bytes:
    return _FIRST_BYTE.pack(http, status)


def last_byte(http: int, status: int, end: int, chunks: int, size: int, wait: int, disconnect: int) -> bytes:
    return _LAST_BYTE.pack(http, status, end, chunks, size, wait, disconnect)


def answered(handle: int, reason: int, by: int, output: int) -> bytes:
    return _ANSWERED.pack(handle, reason, by, output)


def delivered(key: float, returned: int, engine: int, handles) -> bytes:
    return _DELIVERED.pack(key, returned, engine, len(handles)) + Struct(f"<{len(handles)}I").pack(*handles)


def arrived(wall: float, id: str, external: str) -> bytes:
    return _WALL.pack(wall) + text(id) + text(external)


def queued(
    handle: int, prompt: int, limit: int, priority: int, arrived: int, wall: float, client: int,
    n: int, logprobs: int, prompt_logprobs: int, features: int, id: str, external: str,
) -> bytes:  # fmt: skip
    return (
        _QUEUED.pack(handle, prompt, limit, priority, arrived, wall, client, n, logprobs, prompt_logprobs, features)
        + text(id)
        + text(external)
    )


def hashes(handle: int, first: int, chain: bytes) -> bytes:
    return _HASHES.pack(handle, first, len(chain) // 8) + chain


def scheduled(
    iteration: int, alias: int, returned: int, digest: int, tokens: int, members: int, running: int, waiting: int,
    free: int, token_budget: int, seq_budget: int, head: int, need: int, spent: int, stop: int, code: int,
    joins: bytes, leaves: bytes, changes: bytes, preemptions: bytes, skips: bytes, holders: bytes, drafts: bytes,
) -> bytes:  # fmt: skip
    return b"".join((
        _SCHEDULED.pack(
            iteration, alias, returned, digest, tokens, members, running, waiting,
            free, token_budget, seq_budget, head, need, spent, stop, code,
            len(joins) // 24, len(leaves) // 4, len(changes) // 8, len(preemptions) // 32,
            len(skips) // 8, len(holders) // 12, len(drafts) // 8,
        ),
        joins, leaves, changes, preemptions, skips, holders, drafts,
    ))  # fmt: skip


def done(iteration: int, returned: int, key: float, tokens: int, emits: bytes, finishes: bytes) -> bytes:
    return _DONE.pack(iteration, returned, key, tokens, len(emits) // 8, len(finishes) // 12) + emits + finishes


def finished(handle: int, reason: int, output: int) -> bytes:
    return FINISH.pack(handle, reason, output)


def cache(handle: int, first: int, n: int, chain: bytes) -> bytes:
    return _CACHE.pack(handle, first, n, len(chain) // 8) + chain


def step(
    iteration: int, rank: int, padded: int, mode: int, eager: int, returned: int, device: int, wait: int, peak: int
) -> bytes:
    return _STEP.pack(iteration, rank, padded, mode, eager, returned, device, wait, peak)


def notice(code: int, words: str) -> bytes:
    return _NOTICE.pack(code) + text(words)


def labels(http: int, tenant: int, kind: int, route: int) -> bytes:
    return _LABELS.pack(http, tenant, kind, route)
