"""Which of vLLM's modules are hooked, and how."""

import os
import sys
from importlib.machinery import all_suffixes
from importlib.util import find_spec

from . import engine, frontend, worker
from .hooks import WhenImported, lacks

API_SERVER = "vllm.entrypoints.launchers"

HOOKS = {
    "vllm.v1.core.sched.scheduler": engine.hook_scheduler,
    "vllm.v1.core.block_pool": engine.hook_block_pool,
    "vllm.v1.core.kv_cache_manager": engine.hook_cache_manager,
    "vllm.v1.engine.core": engine.hook_engine_core,
    "vllm.v1.engine.output_processor": frontend.hook_output_processor,
    "vllm.v1.worker.gpu_worker": worker.hook_worker,
    "vllm.v1.worker.gpu_model_runner": worker.hook_runner,
    "vllm.v1.worker.gpu.model_runner": worker.hook_second_runner,
    "vllm.entrypoints.serve.engine.serving": frontend.hook_serving,
    "vllm.entrypoints.openai.engine.serving": frontend.hook_serving,  # before 0.24
    "vllm.entrypoints.openai.api_server": frontend.hook_build_app,  # before 0.30
    f"{API_SERVER}.app": frontend.hook_build_app,  # where it is defined
    f"{API_SERVER}.api_server.entry": frontend.hook_build_app,  # and where it is bound
}


def install() -> None:
    patches = dict(HOOKS)
    if hasattr(sys.modules.get("__main__"), "build_app"):  # the server's module is run as a program
        patches["__main__"] = frontend.hook_build_app
    WhenImported(patches)
    for name in absent():
        lacks(name)


def absent() -> list[str]:
    """The modules that this vLLM does not have, found without importing any: nothing else would ever say that they are not
    hooked. Where a hook has several modules, for several versions, one is enough."""
    try:
        package = find_spec("vllm")
    except ValueError:  # made by hand, without a place
        package = None
    if package is None:
        return []
    modules = {hook: [name for name in HOOKS if HOOKS[name] is hook] for hook in HOOKS.values()}
    return [" or ".join(names) for names in modules.values() if not any(found(name, package) for name in names)]


def found(name: str, package) -> bool:
    places = [os.path.join(place, *name.split(".")[1:]) for place in package.submodule_search_locations or ()]
    return any(os.path.exists(place + suffix) for place in places for suffix in ("", *all_suffixes()))
