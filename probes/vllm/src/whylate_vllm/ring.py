"""Ring files: one per writing thread, written without locks and threads."""

import fcntl
import mmap
import os
import sys
import threading
from itertools import count
from struct import Struct
from time import monotonic_ns, time_ns

from . import identity, native, wire
from .log import log

MAGIC = b"WLRING\r\n"
HEADER = 16384
HELLO_AT = 1024
HELLO_MAX = HEADER - HELLO_AT
CLOCK_EVERY = 10_000_000_000
NEVER = 1 << 62
HEAD_OF_FILE = Struct("<8sHHIQIIQ")  # magic, version, header size, data size, pid, length of the hello, start

# Positions in the header, in words of eight bytes.
HEAD, WRITTEN, DROPPED, ERRORS, LAUNCHED, LAUNCHED_AT, COMPLETED, COMPLETED_AT, CLOCK = range(8, 17)
LOAD = 19

mine = threading.local()  # .ring: the one that this thread opened last


class Refused(Exception):
    """No ring can be had, so the probe stays out of this process."""


class Mapped:
    """Writes to a ring's file by copying into mapped memory, without a system call. If somebody makes the file shorter, the
    next write is SIGBUS: the native helper's Writer, which is in its place where there is one, survives that."""

    __slots__ = "fd", "at", "size", "due", "head", "sequence", "words", "map"

    def attach(self, fd: int) -> None:
        self.fd = fd
        self.map = mapped(fd, HEADER + self.size)
        self.words = memoryview(self.map)[:256].cast("Q")

    def detach(self) -> None:
        self.words.release()
        self.map.close()

    def write(self, kind: int, flags: int, time: int, body: bytes) -> None:
        """A frame, and with it whatever stands in `words`."""
        if time > self.due:
            self.clock()
        frame = wire.frame(kind, flags, self.sequence + 1, time, body)
        size, at = len(frame), self.at
        if size > wire.FRAME_MAX or size > self.size:
            self.words[DROPPED] += 1
            return
        if at + size > self.size:
            if at < self.size:
                self.map[HEADER + at : HEADER + at + 8] = b"\0" * 8
                self.head += self.size - at
            at = 0
        self.map[HEADER + at : HEADER + at + size] = frame
        self.at = at + size
        self.sequence += 1
        self.head += size
        words = self.words
        words[HEAD] = self.head
        words[WRITTEN] = self.sequence

    def publish(self) -> None:
        """What stands in `words` is there for all to read."""


class Ring(native.helper.Writer if native.helper else Mapped):
    def __init__(self, role: str, thread: str, size: int, rank: int = 0, abandoned=None, **hello):
        """`hello` is what this ring adds to the process's own; `abandoned` is told when a fork leaves the ring behind."""
        if sys.byteorder != "little":
            raise Refused("this host is big-endian")
        self.abandoned = abandoned
        self.deleted = False
        self.head = self.at = self.sequence = 0
        self.fd = -1
        self.due = NEVER
        try:
            self.size = max(int(os.environ.get("WHYLATE_RING_BYTES") or size), 4096) & ~7
            body = wire.hello(identity.hello(rank, role=role, thread=thread, clock=pair(), **hello))
            self._open(role, thread, body)
        except Exception as error:  # a system without such a call, a size that no file can have
            remedy = "'python -m whylate_vllm check' says what to change"
            raise Refused(f"no ring in {identity.directory()}: {error}; {remedy}") from None
        mine.ring = self
        rings.append(self)

    def _open(self, role: str, thread: str, hello: bytes) -> None:
        """The file is made under another name and linked in when it is locked, reserved in full and can be read."""
        os.makedirs(identity.directory(), 0o700, exist_ok=True)
        self.path = name(role, thread)
        draft = f"{self.path}.{os.urandom(4).hex()}"
        fd = create(draft)
        try:
            reserve(fd, HEADER + self.size)
            self.attach(fd)
            self._introduce(hello)
            os.link(draft, self.path)
        except BaseException:
            os.close(fd)
            raise
        finally:
            os.unlink(draft)

    def _introduce(self, hello: bytes) -> None:
        now = monotonic_ns()
        first = wire.frame(wire.HELLO, 0, 1, now, hello)
        if len(first) > HELLO_MAX:
            raise ValueError(f"a hello of {len(first)} bytes")
        facts = HEAD_OF_FILE.pack(MAGIC, *wire.PROTOCOL, HEADER, self.size, os.getpid(), len(first), identity.start())
        for at, data in (0, facts), (HELLO_AT, first):
            if os.pwrite(self.fd, data, at) != len(data):
                raise OSError(f"only a part of {len(data)} bytes could be written")
        self.write(wire.HELLO, 0, now, hello)
        self.clock()

    def clock(self) -> None:
        self._look()
        before, realtime, after = pair()
        self.due = after + CLOCK_EVERY
        self.words[CLOCK], self.words[CLOCK + 1], self.words[CLOCK + 2] = before, realtime, after
        self.write(wire.CLOCK, 0, after, wire.clock(before, realtime, after))

    def _look(self) -> None:
        """Is the file still there, and whole? Every ten seconds at most, and before a record is written after a pause."""
        status, whole = os.fstat(self.fd), HEADER + self.size
        if status.st_size < whole:  # a write behind its end would be SIGBUS
            self.close()
            raise Refused(f"{self.path} was cut to {status.st_size} of {whole} bytes by another process; restart the engine")
        if not status.st_nlink and not self.deleted:
            self.deleted = True
            log.warning(
                "whylate's ring %s was deleted: only a reader that had opened it before sees what is recorded from here on; "
                "restart the engine, and exempt the directory from whatever cleans it",
                self.path,
            )

    def notice(self, code: int, words: str) -> None:
        self.write(wire.NOTICE, 0, monotonic_ns(), wire.notice(code, words))

    def erred(self) -> None:
        """Counts an error, without a frame: only the ring's own thread may write those."""
        self.words[ERRORS] += 1
        self.publish()

    def failed(self, words: str) -> None:
        self.words[ERRORS] += 1
        self.notice(1, words)

    def close(self) -> None:
        """The file stays: a ring outlives its writer. Closing it gives the lock back."""
        if self in rings:
            rings.remove(self)
        if getattr(mine, "ring", None) is self:
            mine.ring = None
        self.detach()
        os.close(self.fd)
        self.fd = -1


rings: list[Ring] = []  # of this process


def create(path: str) -> int:
    """A new file that only its owner may open, locked by this process."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(fd, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        os.unlink(path)
        raise
    return fd


def reserve(fd: int, size: int) -> None:
    """A file without room fails here, and not when it is written."""
    os.posix_fallocate(fd, 0, size)


def mapped(fd: int, size: int) -> mmap.mmap:
    return mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)


def pair() -> list[int]:
    return [monotonic_ns(), time_ns(), monotonic_ns()]


def name(role: str, thread: str) -> str:
    """A second ring of one kind in one process is numbered; a file of somebody else's under our name is not evaded."""
    stem = f"{identity.directory()}/{identity.boot()[:8]}-{os.getpid()}-{identity.start()}-{role}-{thread}"
    taken = {ring.path for ring in rings}
    return next(path for n in count(1) if (path := f"{stem}-{n}.ring" if n > 1 else f"{stem}.ring") not in taken)


def abandon() -> None:
    """A forked child holds its parent's rings and must not write to them, nor keep their locks."""
    for ring in list(rings):
        ring.close()
        if ring.abandoned:
            ring.abandoned()


os.register_at_fork(after_in_child=abandon)
