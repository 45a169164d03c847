"""vLLM's own scheduler classes in this process, without a model: their decisions are real, their tokens are made up."""

import inspect
import os
import random

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import torch
from tiny_model import make
from vllm.config import CacheConfig, LoRAConfig, ModelConfig, ParallelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

BLOCK = 16
FAILS = "grammar_compile_error_reqs" in inspect.getsource(Scheduler)  # a grammar that does not compile ends its request


def known(callable, **options):
    """Those of the options that this version has."""
    return {name: value for name, value in options.items() if name in inspect.signature(callable).parameters}


def build(
    folder, asynchronous=False, blocks=220, seqs=16, budget=128, length=1024, chunked=True, caching=True, drafts=0,
    adapters=0, stages=1, runner=1, **scheduler,
):  # fmt: skip
    """`stages` of a pipeline; with the second runner, asynchronous scheduling keeps one decision more than that in flight."""
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"  # the configuration would look for Triton; only the scheduler is wanted
    model = ModelConfig(model=str(make(folder)), skip_tokenizer_init=True, dtype="float32", max_model_len=length)
    config = VllmConfig(
        model_config=model,
        scheduler_config=SchedulerConfig(
            max_num_seqs=seqs,
            max_num_batched_tokens=budget,
            max_model_len=length,
            enable_chunked_prefill=chunked,
            async_scheduling=asynchronous and not drafts,
            is_encoder_decoder=False,
            **known(SchedulerConfig, **scheduler),
        ),
        cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=caching),
        speculative_config=SpeculativeConfig(
            method="ngram",
            num_speculative_tokens=drafts,
            prompt_lookup_max=4,
            target_model_config=model,
            target_parallel_config=ParallelConfig(),
        )
        if drafts
        else None,
        lora_config=LoRAConfig(max_loras=adapters, max_cpu_loras=8, max_lora_rank=8) if adapters else None,
    )
    config.parallel_config.pipeline_parallel_size = stages
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(runner - 1)
    config.scheduler_config.async_scheduling = asynchronous
    config.scheduler_config.enable_chunked_prefill = chunked
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    pool = KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    init_none_hash(sha256)
    return (AsyncScheduler if asynchronous else Scheduler)(
        vllm_config=config,
        kv_cache_config=pool,
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        log_stats=True,
    )


def request(id, prompt, limit, priority=0, resumable=False, adapter=0, **params):
    return Request(
        request_id=id,
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(max_tokens=limit, ignore_eos=True, **params),
        pooling_params=None,
        priority=priority,
        resumable=resumable,
        lora_request=LoRARequest(f"adapter-{adapter}", adapter, "/nowhere") if adapter else None,
        block_hasher=get_request_block_hasher(BLOCK, sha256),
    )


class Core:
    """As much of an `EngineCore` as its way in needs: what `receive` gives back has come through vLLM's own code."""

    mm_receiver_cache = None

    def __init__(self, config):
        self.vllm_config, self.structured_output_manager = config, self
        self.request_block_hasher = get_request_block_hasher(BLOCK, sha256)

    def grammar_init(self, request):
        """Nothing compiles here: the load says when a grammar is ready."""

    def receive(self, id, *args, **params):
        made = request(id, *args, **params)
        fields = {
            "request_id": id, "prompt_token_ids": list(made.prompt_token_ids), "mm_features": None, "pooling_params": None,
            "sampling_params": made.sampling_params, "arrival_time": made.arrival_time, "lora_request": made.lora_request,
            "cache_salt": None, "data_parallel_rank": None, "priority": made.priority, "resumable": made.resumable,
            "external_req_id": id.rpartition("_")[2],
        }  # fmt: skip
        return EngineCore.preprocess_add_request(self, EngineCoreRequest(**fields))[0]


def launch(scheduler):
    """`schedule()`, and which members stop short of the end of what is known of them: they will sample nothing."""
    output = scheduler.schedule()
    output.inner = {
        id for id in output.num_scheduled_tokens
        if scheduler.requests[id].num_computed_tokens < scheduler.requests[id].num_tokens
    }  # fmt: skip
    return output


def execute(output, rng):
    """What a model would have sampled: one token, and as many of the drafts as it happens to agree with."""
    ids = list(output.num_scheduled_tokens)
    accepted = {id: rng.randrange(len(drafts) + 1) for id, drafts in output.scheduled_spec_decode_tokens.items()}
    return ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={id: i for i, id in enumerate(ids)},
        sampled_token_ids=[
            [] if id in output.inner else [rng.randrange(3, 500) for _ in range(1 + accepted.get(id, 0))] for id in ids
        ],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )


def draft(scheduler, rng):
    ids = [r.request_id for r in scheduler.running]
    guesses = [[rng.randrange(3, 500) for _ in range(rng.randrange(scheduler.num_spec_tokens + 1))] for _ in ids]
    scheduler.update_draft_token_ids(DraftTokenIds(ids, guesses))


class Grammar:
    """Accepts what it is given, but now and then does not."""

    def __init__(self, rng):
        self.rng = rng

    def accept_tokens(self, id, tokens):
        return self.rng.random() < 0.95

    def is_terminated(self):
        return False

    def validate_tokens(self, tokens):
        return tokens


class Traffic:
    """Random arrivals, shared prefixes, long and short prompts, aborts; in bursts, so that the engine also runs empty."""

    def __init__(
        self, scheduler, seed, rate=0.12, priorities=False, abort=0.03, longest=400, limit=300, grammars=False, sessions=False,
        pace=0.2, adapters=0, groups=0.0, reuse=0.05, make=request,
    ):  # fmt: skip
        self.scheduler, self.rng = scheduler, random.Random(seed)
        self.rate, self.priorities, self.abort, self.longest, self.limit = rate, priorities, abort, longest, limit
        self.grammars, self.sessions, self.adapters, self.groups, self.reuse = grammars, sessions, adapters, groups, reuse
        self.pace = pace  # of the further chunks of streaming sessions
        self.make = make
        self.compiling, self.open = [], []
        self.count = self.step = self.aborts = 0
        self.prefixes = [[self.rng.randrange(3, 500) for _ in range(self.rng.randrange(16, 200))] for _ in range(6)]

    def turn(self):
        rng, self.step = self.rng, self.step + 1
        busy = self.step // 300 % 3 != 2
        if busy and rng.random() < self.rate:
            for _ in range(rng.choice((1, 1, 1, 2, 8))):
                self.arrive()
        while self.compiling and rng.random() < 0.1:
            ready = self.compiling.pop(rng.randrange(len(self.compiling)))
            fails = FAILS and rng.random() < 0.1
            ready.structured_output_request.grammar = ValueError("no such grammar") if fails else Grammar(rng)
        while self.open and rng.random() < self.pace:
            id = self.open.pop(0)
            if id in self.scheduler.requests:
                more = rng.random() < 0.7
                self.scheduler.add_request(self.make(id, [7] * rng.randrange(1, 50), rng.randrange(1, 20), resumable=more))
                self.open += [id] if more else []
        if self.scheduler.requests and rng.random() < self.abort:
            victims = rng.sample(list(self.scheduler.requests), min(len(self.scheduler.requests), rng.choice((1, 1, 3))))
            self.finish(victims)

    def finish(self, victims):
        self.aborts += len(self.scheduler.finish_requests(victims, RequestStatus.FINISHED_ABORTED))
        self.scheduler.finish_requests(victims, RequestStatus.FINISHED_ABORTED)  # from the second queue: counts for nothing

    def arrive(self):
        rng = self.rng
        prompt = list(rng.choice(self.prefixes)) if rng.random() < 0.5 else []
        prompt += [rng.randrange(3, 500) for _ in range(rng.randrange(1, rng.choice((20, 60, self.longest))))]
        self.count += 1
        id = f"r{self.count}" if rng.random() >= self.reuse else f"again-{self.count % 3}"
        if id in self.scheduler.requests:
            return
        limit, priority = rng.randrange(1, rng.choice((4, 40, self.limit))), rng.randrange(3) if self.priorities else 0
        ids = [f"{k}_{id}" for k in range(rng.randrange(2, 5))] if rng.random() < self.groups else [id]
        for id in ids:
            new = self.make(id, list(prompt), limit, priority, **self.extras(id))
            self.scheduler.add_request(new)
            if new.use_structured_output:
                self.compiling.append(new)

    def extras(self, id):
        if self.grammars and self.rng.random() < 0.3:
            return {"structured_outputs": StructuredOutputsParams(regex="a+")}
        if self.sessions and self.rng.random() < 0.3:
            self.open.append(id)
            return {"resumable": True}
        if self.adapters and self.rng.random() < 0.7:
            return {"adapter": self.rng.randrange(1, self.adapters + 1)}
        return {}
