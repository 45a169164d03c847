"""`python -m whylate_vllm.dump RING`: what a ring still holds, one JSON object a line."""

import json
import sys
from struct import Struct, unpack_from
from zlib import crc32

from . import wire
from .ring import HEAD_OF_FILE, HEADER, HELLO_AT, MAGIC

# A field is `name:format`, `str` for a string; `#name:format` is the count of a list, which follows the fields. A nameless
# field is padding.
MESSAGES = {
    wire.CLOCK: ("clock", "mono_before:q realtime:q mono_after:q"),
    wire.RECEIVED: ("received", "http:I request_id:str traceparent:str path:str"),
    wire.SUBMITTED: ("submitted", "http:I handle:I index:I prompt:I id:str external:str parent:str"),
    wire.FIRST_BYTE: ("first_byte", "http:I status:H :2x"),
    wire.LAST_BYTE: ("last_byte", "http:I status:H end:B :x chunks:I bytes:Q wait:Q disconnect:q"),
    wire.ANSWERED: ("answered", "handle:I reason:B by:B :2x output:I"),
    wire.DELIVERED: ("delivered", "key:d returned:q engine:I #handle:I"),
    wire.ARRIVED: ("arrived", "wall:d id:str external:str"),
    wire.QUEUED: (
        "queued",
        "handle:I prompt:I max:I priority:i arrived:q wall:d client:H n:H logprobs:h prompt_logprobs:h features:I "
        "id:str external:str",
    ),
    wire.HASHES: ("hashes", "handle:I first:I #hash:I"),
    wire.SCHEDULED: (
        "scheduled",
        "iteration:Q alias:Q returned:q digest:Q tokens:I members:I running:I waiting:I free:I token_budget:I seq_budget:I "
        "head:I need:I spent:I stop:B stop_code:B #joins:H #leaves:H #changes:H #preemptions:H #skips:H #holders:H #drafts:H",
    ),
    wire.DONE: ("done", "iteration:Q returned:q key:d tokens:I #emits:H #finishes:H"),
    wire.FINISHED: ("finished", "handle:I reason:B :3x output:I"),
    wire.CACHE: ("cache", "handle:I first:I n:I #hash:I"),
    wire.STEP: ("step", "iteration:Q rank:I padded:I mode:B eager:B :2x returned:q device:Q wait:Q peak:Q"),
    wire.NOTICE: ("notice", "code:H :2x text:str"),
    wire.LABELS: ("labels", "http:I :4x tenant:Q class:Q route:Q"),
}
LISTS = {
    "joins": "handle:I tokens:I before:I total:I cached:I kind:B :3x",
    "leaves": "I",
    "changes": "handle:I tokens:I",
    "preemptions": "victim:I preemptor:I lost:I output:I free:I blocks:I cause:B :3x time_delta:I",
    "skips": "handle:I reason:B code:B :2x",
    "holders": "handle:I blocks:I weight:f",
    "drafts": "handle:I tokens:I",
    "emits": "handle:I tokens:H discarded:H",
    "finishes": "handle:I reason:B :3x output:I",
    "handle": "I",
    "hash": "Q",
}


def decode(frame: bytes) -> dict:
    length, sequence, time, _, kind, flags = wire.HEAD.unpack_from(frame, 4)
    body = frame[wire.OVERHEAD : length]
    if kind == wire.HELLO:
        name, fields = "hello", json.loads(body)
    elif kind in MESSAGES:
        name, layout = MESSAGES[kind]
        fields = _fields(body, layout)
    else:
        name, fields = str(kind), {}
    return {"message": name, "type": kind, "flags": flags, "sequence": sequence, "time": time, "fields": fields}


def _fields(body: bytes, layout: str) -> dict:
    fields, counts, at = {}, [], 0
    for part in layout.split():
        name, _, form = part.partition(":")
        if form == "str":
            (size,) = unpack_from("<H", body, at)
            fields[name] = body[at + 2 : at + 2 + size].decode("utf-8")
            at += 2 + size
            continue
        values = unpack_from("<" + form, body, at)
        at += Struct("<" + form).size
        if name.startswith("#"):
            counts.append((name[1:], values[0]))
        elif name:
            fields[name] = values[0]
    for name, count in counts:
        parts = [part.partition(":") for part in LISTS[name].split()]
        names = [key for key, colon, _ in parts if colon and key]
        entry = Struct("<" + "".join(form or key for key, _, form in parts))
        entries = [entry.unpack_from(body, at + i * entry.size) for i in range(count)]
        fields[name] = [dict(zip(names, e)) for e in entries] if names else [e[0] for e in entries]
        at += count * entry.size
    return fields


def header(path: str) -> dict:
    with open(path, "rb") as file:
        data = file.read(HEADER)
    magic, major, _, _, size, pid, hello, start = HEAD_OF_FILE.unpack_from(data)
    if magic != MAGIC or major != wire.PROTOCOL[0]:
        raise ValueError(f"{path} is no ring of format {wire.PROTOCOL[0]}")
    names = "head written dropped errors launched launched_at completed completed_at mono_before realtime mono_after"
    fields = dict(zip(names.split(), unpack_from("<QQQQQqQqqqq", data, 64)))
    fields["running"], fields["waiting"] = unpack_from("<II", data, 152)
    hello = decode(data[HELLO_AT : HELLO_AT + hello])["fields"] if hello else None
    return {"size": size, "pid": pid, "start": start, "hello": hello, **fields}


def whole(data: bytes, at: int) -> int:
    """The length of the frame that stands at this place, or 0."""
    if at + wire.OVERHEAD > len(data):
        return 0
    crc, length = unpack_from("<II", data, at)
    if length < wire.OVERHEAD or length % 8 or at + length > len(data):
        return 0
    return length if crc32(data[at + 4 : at + length]) == crc else 0


def frames(path: str) -> list[bytes]:
    """The frames of a ring, oldest first. What an earlier lap has left at the ring's end does not connect, and is left out."""
    head, size = header(path)["head"], header(path)["size"]
    with open(path, "rb") as file:
        data = file.read()[HEADER:]
    found: list[bytes] = []
    last, position, synchronised = 0, max(head - size, 0), head <= size
    while position < head:
        at = position % size
        if length := whole(data, at):
            frame = data[at : at + length]
            _, sequence, *_ = wire.HEAD.unpack_from(frame, 4)
            if sequence != last + 1:
                found.clear()
            found.append(frame)
            last, position, synchronised = sequence, position + length, True
        elif synchronised and not any(data[at : at + 8]):
            position += size - at
        else:
            position += 8
    return found


def main() -> None:
    for path in sys.argv[1:]:
        print(json.dumps({"ring": path, **header(path)}, ensure_ascii=False))
        for frame in frames(path):
            print(json.dumps(decode(frame), ensure_ascii=False))


if __name__ == "__main__":
    main()
