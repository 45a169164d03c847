"""What a scheduler's decisions depend on, and what this build of the probe can see of them."""

import os

from . import hooks

SETTINGS = {
    "scheduler": "__class__.__name__",
    "model": "vllm_config.model_config.model",
    "served_model": "vllm_config.model_config.served_model_name",
    "dtype": "vllm_config.model_config.dtype",
    "quantization": "vllm_config.model_config.quantization",
    "enforce_eager": "vllm_config.model_config.enforce_eager",
    "runner": "vllm_config.model_config.runner_type",
    "max_model_len": "max_model_len",
    "max_num_seqs": "scheduler_config.max_num_seqs",
    "max_num_active_seqs": "max_num_active_reqs",
    "max_num_batched_tokens": "scheduler_config.max_num_batched_tokens",
    "max_num_scheduled_tokens": "max_num_scheduled_tokens",
    "enable_chunked_prefill": "scheduler_config.enable_chunked_prefill",
    "long_prefill_token_threshold": "scheduler_config.long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive": "adaptive_long_prefill_threshold",
    "policy": "policy",
    "async_scheduling": "scheduler_config.async_scheduling",
    "scheduler_reserve_full_isl": "scheduler_reserve_full_isl",
    "watermark": "scheduler_config.watermark",
    "watermark_blocks": "kv_cache_manager.watermark_blocks",
    "max_num_encoder_input_tokens": "max_num_encoder_input_tokens",
    "disable_chunked_mm_input": "scheduler_config.disable_chunked_mm_input",
    "block_size": "block_size",
    "hash_block_size": "hash_block_size",
    "num_gpu_blocks": "kv_cache_manager.block_pool.num_gpu_blocks",
    "kv_cache_groups": "kv_cache_manager.num_kv_cache_groups",
    "cache_dtype": "cache_config.cache_dtype",
    "sliding_window": "cache_config.sliding_window",
    "enable_prefix_caching": "cache_config.enable_prefix_caching",
    "prefix_caching_hash_algo": "cache_config.prefix_caching_hash_algo",
    "num_speculative_tokens": "num_spec_tokens",
    "num_lookahead_tokens": "num_lookahead_tokens",
    "draft_slots": "vllm_config.speculative_config.max_num_new_slots_for_drafting",
    "max_loras": "lora_config.max_loras",
    "tensor_parallel_size": "parallel_config.tensor_parallel_size",
    "pipeline_parallel_size": "parallel_config.pipeline_parallel_size",
    "data_parallel_size": "parallel_config.data_parallel_size",
    "decode_context_parallel_size": "dcp_world_size",
    "prefill_schedule_interval": "parallel_config.prefill_schedule_interval",
    "kv_connector": "vllm_config.kv_transfer_config.kv_connector",
    "model_runner_v2": "use_v2_model_runner",
}

CAPABILITIES = {
    "queued": "Scheduler.add_request",
    "scheduled": "Scheduler.schedule",
    "preemptions": "Scheduler._preempt_request",
    "preemptors": "Scheduler._preempt_request",
    "skips": ("Scheduler._handle_blocked_waiting_request", "Scheduler._select_waiting_queue_for_scheduling"),
    "holders": "Scheduler.schedule",
    "drafts": "Scheduler.schedule",
    "done": "Scheduler.update_from_output",
    "discarded": "Scheduler.update_from_output",
    "finished": "Scheduler._free_request",
    "cache_filled": "BlockPool.cache_full_blocks",
    "cache_evicted": "BlockPool._maybe_evict_cached_block",
    "cache_reset": "Scheduler.reset_prefix_cache",
}


def settings(scheduler) -> dict:
    return {name: reach(scheduler, path) for name, path in SETTINGS.items()} | {"rust_frontend": rust_frontend()}


def rust_frontend() -> bool:
    """The API server is then no Python process; before 0.30 its path alone chose it."""
    return any(os.environ.get(name, "0") not in ("", "0") for name in ("VLLM_USE_RUST_FRONTEND", "VLLM_RUST_FRONTEND_PATH"))


def capabilities(**more) -> dict[str, bool]:
    """`more` is what the caller knows by itself. A hook point has another name in another version."""
    points = {name: (hook,) if isinstance(hook, str) else hook for name, hook in CAPABILITIES.items()}
    return {name: any(hook in hooks.installed for hook in point) for name, point in points.items()} | more


def rank(config) -> int:
    return getattr(config.parallel_config, "data_parallel_index", None) or 0


def reach(thing, path: str):
    for name in path.split("."):
        thing = getattr(thing, name, None)
    return thing if isinstance(thing, (bool, int, float, str, type(None))) else str(getattr(thing, "value", thing))
