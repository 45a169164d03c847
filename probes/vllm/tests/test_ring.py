import fcntl
import json
import os
import stat
import struct
from pathlib import Path

import pytest

from whylate_vllm import native, wire
from whylate_vllm import ring as module
from whylate_vllm.dump import decode, frames, header
from whylate_vllm.ring import HEADER, Refused, Ring


def fill(ring, count, size=20):
    for i in range(count):
        ring.write(wire.NOTICE, 0, 1, wire.notice(i & 0xFFFF, "x" * (size + i % 40)))


def numbers(path):
    return [decode(frame)["sequence"] for frame in frames(path)]


def test_a_new_ring():
    ring = Ring("engine", "scheduler", 1 << 20, rank=3, settings={"max_num_seqs": 16})
    status, path = os.stat(ring.path), Path(ring.path)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert path.name == f"{boot}-{os.getpid()}-{start}-engine-scheduler.ring"
    assert stat.S_IMODE(status.st_mode) == 0o600 and stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700
    assert status.st_size == HEADER + (1 << 20) and status.st_blocks * 512 >= status.st_size  # reserved in full
    seen = header(ring.path)
    assert seen["pid"] == os.getpid() and seen["start"] == start and seen["written"] == 2 and seen["dropped"] == 0
    first, second = [decode(frame) for frame in frames(ring.path)]
    assert first["message"] == "hello" and second["message"] == "clock" and first["fields"] == seen["hello"]
    assert first["fields"]["engine"]["rank"] == 3 and first["fields"]["settings"] == {"max_num_seqs": 16}
    assert (seen["mono_before"], seen["realtime"], seen["mono_after"]) == tuple(second["fields"].values())
    raw = path.read_bytes()
    assert raw[:8] == b"WLRING\r\n" and struct.unpack_from("<HHIQ", raw, 8) == (1, 1, HEADER, 1 << 20)


def test_it_is_locked_while_its_writer_lives():
    ring = Ring("engine", "input", 1 << 16)
    with open(ring.path) as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        ring.close()
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert os.path.exists(ring.path)


def test_before_it_is_full_nothing_is_lost():
    ring = Ring("engine", "input", 1 << 20)
    fill(ring, 1000)
    assert numbers(ring.path) == list(range(1, 1003))


@pytest.mark.parametrize("size", [4096, 4104, 8192 + 8, 65536])
def test_a_full_ring_overwrites_its_oldest(monkeypatch, size):
    monkeypatch.setenv("WHYLATE_RING_BYTES", str(size))
    ring = Ring("engine", "input", 1)
    lost = False
    for _ in range(60):
        fill(ring, 37)
        seen = numbers(ring.path)
        assert seen == list(range(seen[0], ring.sequence + 1))
        lost |= seen[0] > 1
        kept = sum(len(frame) for frame in frames(ring.path))
        assert kept > min(size - 300, ring.head - 300)
    assert lost or size > 60000
    assert header(ring.path)["head"] == ring.head and ring.head % 8 == 0


def test_a_frame_ends_exactly_at_the_end(monkeypatch):
    monkeypatch.setenv("WHYLATE_RING_BYTES", "4096")
    ring = Ring("engine", "input", 1)
    room = ring.size - ring.at
    ring.write(wire.NOTICE, 0, 1, bytes(room - wire.OVERHEAD))
    assert ring.at == ring.size and ring.head == ring.size
    ring.write(wire.NOTICE, 0, 1, wire.notice(1, "next"))
    assert ring.head == ring.size + 40 and numbers(ring.path)[-1] == 4


def test_what_does_not_fit_is_dropped_and_counted(monkeypatch):
    ring = Ring("engine", "input", 2 << 20)
    ring.write(wire.NOTICE, 0, 1, bytes(wire.FRAME_MAX))
    monkeypatch.setenv("WHYLATE_RING_BYTES", "4096")
    small = Ring("engine", "scheduler", 1)
    small.write(wire.NOTICE, 0, 1, bytes(5000))
    for seen in map(header, (ring.path, small.path)):
        assert seen["dropped"] == 1 and seen["written"] == 2


def test_the_clock_is_read_again_after_ten_seconds():
    ring = Ring("engine", "input", 1 << 20)
    ring.write(wire.NOTICE, 0, ring.due - 1, wire.notice(1, "before"))
    ring.write(wire.NOTICE, 0, ring.due + 1, wire.notice(1, "after"))
    assert [decode(f)["message"] for f in frames(ring.path)] == ["hello", "clock", "notice", "clock", "notice"]


def test_two_rings_of_one_kind_in_one_process():
    first, second = Ring("engine", "scheduler", 1 << 16), Ring("engine", "scheduler", 1 << 16)
    assert second.path == first.path.replace(".ring", "-2.ring")


def refused(words):
    with pytest.raises(Refused, match=words):
        Ring("engine", "scheduler", 1 << 16)
    assert not module.rings


def test_a_squatted_name_is_refused(tmp_path):
    ring = Ring("engine", "scheduler", 1 << 16)
    ring.close()
    refused("exists")
    assert os.path.getsize(ring.path) == HEADER + (1 << 20)  # it was left alone


def test_a_symbolic_link_is_refused(tmp_path):
    ring = Ring("engine", "scheduler", 1 << 16)
    ring.close()
    os.rename(ring.path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "nowhere", ring.path)
    refused("exists")
    assert not (tmp_path / "nowhere").exists()


def test_a_full_tmpfs_is_refused_and_leaves_nothing(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    refused("No space left")
    assert os.listdir(tmp_path / "rings") == []


@pytest.mark.skipif(native.helper is not None, reason="the native helper maps nothing")
def test_no_memory_map_is_refused_and_leaves_nothing(monkeypatch, tmp_path):
    def none(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(module.mmap, "mmap", none)
    refused("Cannot allocate")
    assert os.listdir(tmp_path / "rings") == []


def test_a_folder_that_cannot_be_written_is_refused(monkeypatch):
    monkeypatch.setenv("WHYLATE_RING_DIR", "/proc/self/whylate")
    refused("/proc/self/whylate")


def test_a_size_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("WHYLATE_RING_BYTES", "fifteen")
    refused("fifteen")


def test_a_forked_child_neither_writes_nor_keeps_the_lock():
    forgotten = []
    ring = Ring("engine", "scheduler", 1 << 16, abandoned=lambda: forgotten.append(1))
    before = ring.head
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            own = Ring("engine", "scheduler", 1 << 16)
            own.notice(1, "of the child")
            facts = {"forgotten": forgotten, "closed": ring.fd == -1, "path": own.path, "open": len(module.rings)}
            os.write(writing, json.dumps(facts).encode())
            os.read(reading, 0)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    facts = json.loads(os.read(reading, 4096))
    assert facts["forgotten"] == [1] and facts["closed"] and facts["open"] == 1
    assert f"-{child}-" in facts["path"] and facts["path"] != ring.path
    assert ring.head == before and not forgotten
    ring.notice(1, "of the parent")
    assert numbers(ring.path) == [1, 2, 3]


def test_a_living_child_does_not_hold_a_dead_parents_lock():
    """What is inherited by fork shares the lock: it must be closed in the child."""
    reading, writing = os.pipe()
    parent = os.fork()
    if not parent:
        ring = Ring("engine", "scheduler", 1 << 16)
        if not os.fork():
            os.write(writing, ring.path.encode())
            os.close(writing)
            import time

            time.sleep(3)
        os._exit(0)
    os.waitpid(parent, 0)
    path = os.read(reading, 4096).decode()
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_what_an_earlier_lap_left_at_the_end_is_not_read(monkeypatch):
    """The second lap ends earlier than the first: a whole frame of the first stands behind its end."""
    monkeypatch.setenv("WHYLATE_RING_BYTES", "4096")
    ring = Ring("engine", "input", 1)
    ring.write(wire.NOTICE, 0, 1, bytes(ring.size - ring.at - wire.OVERHEAD - 64))
    ring.write(wire.NOTICE, 0, 1, bytes(64 - wire.OVERHEAD))  # the last 64 bytes of the first lap
    assert ring.at == ring.size
    ring.write(wire.NOTICE, 0, 1, bytes(ring.size - 128 - wire.OVERHEAD))
    ring.write(wire.NOTICE, 0, 1, bytes(128 - wire.OVERHEAD + 8))  # does not fit: 128 bytes are skipped
    assert numbers(ring.path) == [ring.sequence]
    ring.write(wire.NOTICE, 0, 1, bytes(8))
    assert numbers(ring.path)[-2:] == [ring.sequence - 1, ring.sequence]


def test_a_reader_finds_nothing_half_made(monkeypatch, tmp_path):
    """Until it is locked, reserved and has its hello, a ring has another name."""
    seen = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: seen.extend(os.listdir(tmp_path / "rings")) or os.truncate(*_[::2]))
    ring = Ring("engine", "input", 1 << 16)
    assert len(seen) == 1 and not seen[0].endswith(".ring")
    assert os.listdir(tmp_path / "rings") == [os.path.basename(ring.path)]
