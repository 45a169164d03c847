"""The wheel: built, installed into a fresh environment without a network, checked, and uninstalled in one line."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(*command, status=0):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    # No index may be asked, whatever this machine's pip is told elsewhere.
    done = subprocess.run(command, env=env | {"PIP_NO_INDEX": "1"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, (command, done.stdout, done.stderr)
    return done.stdout


def build(folder) -> list[Path]:
    return [Path(line) for line in run(str(ROOT / "scripts/probe-wheel.sh"), str(folder)).splitlines()]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """By what they have of the native helper."""
    if not (ROOT / "scripts/probe-wheel.sh").exists():
        pytest.skip("only in the repository")
    return {"none" if "py3-none-any" in path.name else "native": path for path in build(tmp_path_factory.mktemp("dist"))}


@pytest.fixture(params=["none", "native"])
def wheel(request, wheels):
    if request.param not in wheels:
        pytest.skip("the native helper cannot be built here")
    return wheels[request.param]


def test_what_is_in_it(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    sources = {f"whylate_vllm/{file.name}" for file in (ROOT / "probes/vllm/src/whylate_vllm").glob("*.py")}
    native = "py3-none-any" not in wheel.name
    assert not native or "-cp310-abi3-linux_" in wheel.name
    helper = {"whylate_vllm/_native.abi3.so"} if native else set()
    assert {name for name in names if ".dist-info/" not in name} == sources | helper
    assert any(name.endswith("LICENSE") for name in names) and "Requires-Dist" not in metadata
    (again,) = [path for path in build(tmp_path) if path.name == wheel.name]
    assert again.read_bytes() == wheel.read_bytes()


def test_it_installs_offline_and_goes_in_one_line(wheel, tmp_path):
    try:
        run(sys.executable, "-m", "venv", str(tmp_path / "env"))
    except AssertionError as error:
        pytest.skip(f"this Python makes no environments: {error}")
    python = str(tmp_path / "env/bin/python")
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", str(wheel))
    entry = "from importlib.metadata import entry_points as e; print(*[p.load() for p in e(group='vllm.general_plugins')])"
    assert "function register" in run(python, "-c", entry)
    said = run(python, "-m", "whylate_vllm", "check", status=1)  # there is no vLLM in it
    assert "plugin    installed" in said and "no distribution vllm" in said and said.count("WRONG") <= 2
    helper = "none" if "py3-none-any" in wheel.name or os.environ.get("WHYLATE_NATIVE") == "off" else "native 1"
    assert f"\nhelper    {helper}" in said
    run(python, "-m", "pip", "uninstall", "--yes", "whylate-vllm")
    assert run(python, "-c", entry) == "\n"
    assert not list((tmp_path / "env").rglob("*whylate*"))


def test_without_a_compiler_there_is_the_one_in_python(tmp_path, monkeypatch):
    """And what is installed from the sources has no helper, and works."""
    monkeypatch.setenv("CC", "/nowhere/cc")
    (only,) = build(tmp_path)
    assert "py3-none-any" in only.name
