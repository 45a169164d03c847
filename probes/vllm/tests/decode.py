"""A small reader of engine rings: from the frames alone it knows the batch, the queue and every sequence's progress."""

import os
from dataclasses import dataclass, field
from struct import unpack

from whylate_vllm import wire
from whylate_vllm.dump import decode, frames, whole
from whylate_vllm.ring import HEADER

MIX, U64 = 0x9E3779B97F4A7C15, (1 << 64) - 1
BLOCKS, HEAD_OF_LINE = 3, 4


@dataclass
class Seq:
    handle: int
    id: str
    prompt: int
    computed: int = 0  # what the next decision finds computed
    total: int = 0  # tokens known
    output: int = 0  # tokens emitted
    discarded: int = 0
    cached: int = 0
    admitted: int = 0
    preempted: int = 0
    reason: int = 0
    session: bool = False  # more of its prompt came later, or this reader did
    fills: list = field(default_factory=list)  # (time, blocks) since its blocks were last taken away
    chain: list = field(default_factory=list)


@dataclass
class Iteration:
    fields: dict
    flags: int
    members: dict  # handle: tokens
    before: dict
    total: dict
    drafts: dict
    waits: dict  # handle: (reason, code), of every live sequence that is no member
    done: dict | None = None
    emitted: dict = field(default_factory=dict)

    def silent(self, handle):
        return self.before[handle] + self.members[handle] - self.drafts.get(handle, 0) < self.total[handle]


class Reader:
    def __init__(self):
        self.live: dict[int, Seq] = {}
        self.all: dict[int, Seq] = {}
        self.members: dict[int, int] = {}
        self.skips: dict[int, tuple] = {}
        self.iterations: dict[int, Iteration] = {}
        self.last: Iteration | None = None
        self.sequence = self.position = 0
        self.notices: list[tuple] = []
        self.events: list[tuple] = []
        self.updates: list[tuple] = []

    def read(self, path):
        for frame in frames(path):
            self.take(frame)
        return self

    def follow(self, ring):
        """Whatever the writer has added to its ring since the last time."""
        (head,) = unpack("<Q", os.pread(ring.fd, 8, 64))
        while self.position < head:
            at = HEADER + self.position % ring.size
            (length,) = unpack("<I", os.pread(ring.fd, 4, at + 4))
            if length:
                frame = os.pread(ring.fd, length, at)
                assert whole(frame, 0) == length
                self.take(frame)
            else:
                assert not any(os.pread(ring.fd, 8, at))
                length = ring.size - self.position % ring.size
            self.position += length
        return self

    def take(self, frame: bytes):
        message = decode(frame)
        assert message["sequence"] == self.sequence + 1, "a hole"
        self.sequence += 1
        handler = getattr(self, message["message"], None)
        self.events.append((message["message"], message["time"]))
        if handler:
            handler(message["flags"], message["time"], message["fields"])
        return message

    def notice(self, flags, time, f):
        self.notices.append((f["code"], f["text"]))

    def queued(self, flags, time, f):
        if flags & wire.UPDATE:
            self.live[f["handle"]].session = True
            self.updates.append((f["handle"], time))
            return
        known = self.all.get(f["handle"])
        if known:
            assert flags & wire.REPEAT and known.id == f["id"] and f["handle"] in self.live
            return
        seq = Seq(f["handle"], f["id"], f["prompt"], total=f["prompt"], session=bool(flags & wire.REPEAT))
        self.live[seq.handle] = self.all[seq.handle] = seq

    def hashes(self, flags, time, f):
        assert len(self.all[f["handle"]].chain) == f["first"]
        self.all[f["handle"]].chain += f["hash"]

    def cache(self, flags, time, f):
        if flags == wire.FILLED:
            seq = self.all[f["handle"]]
            seq.fills.append((time, f["n"]))
            assert len(f["hash"]) == max(f["first"] + f["n"] - max(f["first"], len(seq.chain)), 0)

    def scheduled(self, flags, time, f):
        assert f["iteration"] == (self.last.fields["iteration"] + 1 if self.last else 1)
        for p in f["preemptions"]:
            victim = self.live[p["victim"]]
            assert victim.session or p["output"] == victim.output, (p, victim)
            victim.computed, victim.preempted = 0, victim.preempted + 1
            taken = time + p["time_delta"] * 1000
            victim.fills = [fill for fill in victim.fills if fill[0] >= taken]
        if flags & wire.FULL:
            self.members = {}
        for handle in f["leaves"]:
            del self.members[handle]
        for change in f["changes"]:
            assert self.members[change["handle"]] != change["tokens"]
            self.members[change["handle"]] = change["tokens"]
        for join in f["joins"]:
            seq = self.all[join["handle"]]
            if seq.session:
                seq.computed, seq.total, seq.cached = join["before"], join["total"], join["cached"]
            elif join["kind"] == 3:
                assert (seq.computed, seq.total, seq.cached) == (join["before"], join["total"], join["cached"]), (join, seq)
            else:
                assert join["kind"] == (2 if seq.preempted else 1) and join["total"] == seq.total
                seq.computed, seq.cached = join["before"], join["cached"]
                seq.admitted += 1
            self.members[seq.handle] = join["tokens"]
        digest = 0
        for handle in self.members:
            digest ^= handle * MIX & U64
        assert digest == f["digest"] and len(self.members) == f["members"] and sum(self.members.values()) == f["tokens"]
        if flags & wire.SKIPS:
            self.skips = {skip["handle"]: (skip["reason"], skip["code"]) for skip in f["skips"]}
        else:
            assert not f["skips"]
        self.last = Iteration(
            f, flags, dict(self.members),
            {h: self.all[h].computed for h in self.members},
            {h: self.all[h].total for h in self.members},
            {d["handle"]: d["tokens"] for d in f["drafts"]},
            self.waits(f),
        )  # fmt: skip
        self.iterations[f["iteration"]] = self.last
        for handle, tokens in self.members.items():
            self.all[handle].computed += tokens

    def waits(self, f):
        waits = {}
        for handle in self.live:
            if handle not in self.members:
                stop = f["stop"], f["stop_code"]
                if f["stop"] == BLOCKS and handle != f["head"]:
                    stop = HEAD_OF_LINE, 0
                waits[handle] = self.skips.get(handle, stop)
        return waits

    def done(self, flags, time, f):
        iteration = self.iterations[f["iteration"]]
        assert iteration.done is None
        iteration.done = f
        odd = {emit["handle"]: (emit["tokens"], emit["discarded"]) for emit in f["emits"]}
        for handle in iteration.members:
            seq = self.all[handle]
            tokens, discarded = odd.get(handle, (0 if iteration.silent(handle) else 1, 0))
            seq.output += tokens
            seq.total += tokens
            seq.discarded += discarded
            iteration.emitted[handle] = tokens
            if drafts := iteration.drafts.get(handle):
                if seq.computed and tokens:
                    seq.computed -= drafts - (tokens - 1)
        assert sum(iteration.emitted.values()) == f["tokens"], (f, iteration)
        for finish in f["finishes"]:
            self.end(finish)

    def finished(self, flags, time, f):
        self.end(f)

    def end(self, f):
        seq = self.live.pop(f["handle"])
        seq.reason = f["reason"]
        assert seq.output == f["output"] or seq.session, (seq, f)
