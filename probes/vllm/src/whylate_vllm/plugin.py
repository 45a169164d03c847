"""Which of vLLM's modules are hooked, and how."""

import sys

from . import engine, frontend, worker
from .hooks import WhenImported

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
