"""`python -m whylate_vllm check`, on a vLLM made of stubs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from whylate_vllm import check, plugin

ALL = "{name: value for name, value in vars(MODULE).items() if name[0] != '_'}"
HERE, SOURCE = Path(__file__).parent, Path(__file__).parents[1] / "src"


@pytest.fixture
def site(tmp_path):
    """A vLLM 9.9 whose modules are those of whole.py's engine, and the probe's own distribution."""
    for name in plugin.HOOKS:
        file = tmp_path / (name.replace(".", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("print('vLLM talks')\nfrom vllm import MODULE\nglobals().update(STUBS)\n".replace("STUBS", ALL))
    (tmp_path / "vllm/__init__.py").write_text(
        f"import sys\nsys.path.append({str(HERE)!r})\nfrom whole import Engine\nMODULE = Engine().module"
    )
    metadata(tmp_path, "vllm", "9.9", "")
    metadata(tmp_path, "whylate_vllm", "0.1.0", f"[{check.GROUP}]\n{check.NAME} = {check.VALUE}\n")
    return tmp_path


def metadata(site, name, version, entry_points):
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "entry_points.txt").write_text(entry_points)


def run(site, *arguments, **environment):
    env = {name: value for name, value in os.environ.items() if name not in ("VLLM_PLUGINS", "WHYLATE_AGENT_KEY_FILE")}
    env |= {"PYTHONPATH": f"{SOURCE}:{site}", **environment}
    command = [sys.executable, "-m", "whylate_vllm", "check", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def looked(site, status, **environment):
    done = run(site, "--json", **environment)
    assert done.returncode == status, (done.stdout, done.stderr)
    said = json.loads(done.stdout)
    assert said["well"] == (status == 0) == (not said["wrong"])
    return said


def complaint(site, **environment):
    (wrong,) = looked(site, 1, **environment)["wrong"]
    return wrong["what"], wrong["do"]


memory = pytest.mark.skipif(
    check.file_system(Path("/dev/shm")) != "tmpfs" or not os.access("/dev/shm", os.W_OK), reason="no /dev/shm to write to"
)


@pytest.fixture
def rings():
    folder = Path(f"/dev/shm/whylate-check-test-{os.getpid()}")
    yield str(folder)
    assert not folder.exists()  # it has left nothing


@memory
def test_all_is_well(site, rings):
    said = looked(site, 0, WHYLATE_RING_DIR=rings)
    assert said["engine"] == {"name": "vllm", "version": "9.9"}
    assert said["plugin"] == {"installed": True, "filtered": False, "VLLM_PLUGINS": None}
    points = {point["point"]: point["parameters"] for point in said["hooks"]}
    assert points["Scheduler.schedule"] == "throttle_prefills"
    assert points["OutputProcessor.add_request"] == "request, prompt, parent_req, request_index, queue"
    can = said["capabilities"]
    assert (
        can["engine-input"] == {"arrived": True} and all(can["frontend-loop"].values()) and can["engine-scheduler"]["scheduled"]
    )
    assert (
        said["rings"]["usable"]
        and said["rings"]["file_system"] == "tmpfs"
        and said["rings"]["needed"] == 4 * ((1 << 20) + 16384)
    )
    done = run(site, WHYLATE_RING_DIR=rings)
    assert done.returncode == 0 and "well " in done.stdout and "WRONG" not in done.stdout
    assert "vLLM talks" in done.stderr and "vLLM talks" not in done.stdout


@memory
def test_what_keeps_the_plugin_out(site, rings):
    what, do = complaint(site, WHYLATE_RING_DIR=rings, VLLM_PLUGINS="lora,other")
    assert "VLLM_PLUGINS" in what and do == "VLLM_PLUGINS=lora,other,whylate, or unset it"
    assert complaint(site, WHYLATE_RING_DIR=rings, VLLM_PLUGINS="")[1].startswith("VLLM_PLUGINS=whylate,")
    assert looked(site, 0, WHYLATE_RING_DIR=rings, VLLM_PLUGINS="whylate")["plugin"]["VLLM_PLUGINS"] == "whylate"
    assert complaint(site, WHYLATE_RING_DIR=rings, WHYLATE_PROBE="off")[1] == "unset WHYLATE_PROBE"
    for file in (site / "whylate_vllm-0.1.0.dist-info").iterdir():
        file.unlink()
    what, do = complaint(site, WHYLATE_RING_DIR=rings)
    assert "no entry point" in what and "pip install" in do


@memory
def test_a_hook_point_that_is_missing_and_one_that_has_changed(site, rings):
    package = site / "vllm/__init__.py"
    package.write_text(package.read_text() + (
        "\ndel MODULE.Scheduler._preempt_request\n"
        "MODULE.EngineCore.preprocess_add_request = lambda self, wave, request: None\n"
    ))  # fmt: skip
    (site / "vllm/v1/core/block_pool.py").unlink()
    said = looked(site, 1, WHYLATE_RING_DIR=rings)
    told = sorted(wrong["what"] for wrong in said["wrong"])
    assert len(told) == 3 and told[0] == "this vLLM has no stubs.Scheduler._preempt_request"
    assert told[1] == "this vLLM has no vllm.v1.core.block_pool"
    assert told[2].endswith("EngineCore.preprocess_add_request: parameter 1 is 'wave', where the probe reads 'request'")
    can = said["capabilities"]
    assert (
        not can["engine-scheduler"]["preemptions"] and not can["engine-input"]["arrived"] and can["engine-scheduler"]["queued"]
    )


@memory
def test_a_vllm_that_cannot_be_imported(site, rings):
    (site / "vllm/v1/engine/core.py").write_text("raise SystemExit('no such card')")
    what, do = complaint(site, WHYLATE_RING_DIR=rings)
    assert what == "vllm.v1.engine.core: SystemExit: no such card"


@memory
def test_without_vllm(tmp_path, rings):
    metadata(tmp_path, "whylate_vllm", "0.1.0", f"[{check.GROUP}]\n{check.NAME} = {check.VALUE}\n")
    what, do = complaint(tmp_path, WHYLATE_RING_DIR=rings)
    assert "no distribution vllm" in what and "-m whylate_vllm check" in do


def test_directories_that_cannot_be_used(site, tmp_path):
    (tmp_path / "file").touch()
    what, do = complaint(site, WHYLATE_RING_DIR=str(tmp_path / "file"))
    assert "File exists" in what and "no directory" in do
    assert "Not a directory" in complaint(site, WHYLATE_RING_DIR=str(tmp_path / "file/below"))[0]
    assert complaint(site, WHYLATE_RING_BYTES="fifteen")[1] == "unset WHYLATE_RING_BYTES"
    what, do = complaint(site, WHYLATE_RING_DIR="/proc/self/whylate")
    assert "no ring can be made in /proc/self/whylate" in what


@memory
def test_too_little_room(site, rings):
    what, do = complaint(site, WHYLATE_RING_DIR=rings, WHYLATE_RING_BYTES=str(1 << 45))
    assert "No space left" in what or "File too large" in what
    assert "WHYLATE_RING" in do


@memory
def test_the_key(site, rings, tmp_path):
    file = tmp_path / "key"
    where = {"WHYLATE_RING_DIR": rings, "WHYLATE_AGENT_KEY_FILE": str(file)}
    assert looked(site, 0, **where)["key"] == {"file": str(file), "exists": False}  # the agent makes it
    file.write_text("ab" * 32 + "\n")
    assert looked(site, 0, **where)["key"]["exists"]
    file.write_text("too short")
    what, do = complaint(site, **where)
    assert "64 hex digits" in what and do.startswith("openssl rand -hex 32") and "too short" not in what


def test_a_directory_on_a_disk_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(check, "file_system", lambda path: "ext4")
    monkeypatch.setenv("WHYLATE_RING_DIR", str(tmp_path / "rings"))
    report = check.Report()
    assert check.rings(report)["usable"] and not (tmp_path / "rings").exists()
    assert "on ext4, not in memory" in report.wrong[0]["what"] and "mount -t tmpfs" in report.wrong[0]["do"]


def test_wrong_usage(site):
    for arguments in ["nonsense"], ["check", "--yaml"], []:
        done = subprocess.run(
            [sys.executable, "-m", "whylate_vllm", *arguments],
            env=os.environ | {"PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2 and done.stderr.startswith("usage: ")
