import pytest

from whylate_vllm import frontend, hooks, ring


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    """Rings of a test's own, small ones, and no memory of hooks that another test has blown."""
    monkeypatch.setenv("WHYLATE_RING_DIR", str(tmp_path / "rings"))
    monkeypatch.setenv("WHYLATE_RING_BYTES", str(1 << 20))
    for name in "WHYLATE_PROBE", "WHYLATE_BLOCK_HASHES", "WHYLATE_DEPLOYMENT", "WHYLATE_REPLICA", "WHYLATE_KEY_FILE":
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    for opened in list(ring.rings):
        opened.close()
    frontend.forget()
    hooks.missing.clear()
    hooks.Guard.refused = False
    for guard in hooks.Guard.all:
        guard.on = True
