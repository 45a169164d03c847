"""What the probe touches of vLLM 0.32's scheduler, and no more: for tests and figures without vLLM."""

from collections import deque
from enum import IntEnum
from types import SimpleNamespace


class Status(IntEnum):
    WAITING = 1
    WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR = 2
    WAITING_FOR_REMOTE_KVS = 3
    WAITING_FOR_STREAMING_REQ = 4
    RUNNING = 5
    PREEMPTED = 6
    FINISHED_STOPPED = 7
    FINISHED_LENGTH_CAPPED = 8
    FINISHED_ABORTED = 9
    FINISHED_ERROR = 11


class Request:
    def __init__(self, id, prompt=4, limit=16, priority=0, hashes=(), logprobs=None, penalty=0.0):
        self.request_id, self.num_prompt_tokens, self.max_tokens, self.priority = id, prompt, limit, priority
        self.num_tokens, self.num_computed_tokens, self.num_output_tokens = prompt, 0, 0
        self.status, self.arrival_time, self.client_index = Status.WAITING, 1.5, 0
        self.block_hashes = list(hashes)
        self.sampling_params = SimpleNamespace(
            logprobs=logprobs, prompt_logprobs=None, structured_outputs=None,
            presence_penalty=penalty, frequency_penalty=0.0, repetition_penalty=1.0,
        )  # fmt: skip
        self.lora_request, self.mm_features, self.resumable, self.has_encoder_inputs = None, [], False, False
        self.is_prefill_chunk, self.drop_stale_output = False, False
        self.num_output_placeholders = self.num_stale_output_tokens = self.next_decode_eligible_step = 0
        self.num_preemptions = 0

    @property
    def num_tokens_with_spec(self):
        return self.num_tokens


class Output:
    def __init__(self, tokens, drafts=None):
        self.num_scheduled_tokens = tokens
        self.total_num_scheduled_tokens = sum(tokens.values())
        self.scheduled_spec_decode_tokens = drafts or {}


class Pool:
    def __init__(self, free):
        self.free, self.num_gpu_blocks, self.hash_block_size = free, 1000, 16

    def get_num_free_blocks(self):
        return self.free

    def cache_full_blocks(self, request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id):
        pass


def make_scheduler_class():
    """A fresh class each time: hooks stay on what they were put on."""

    class Scheduler:
        def __init__(self, seqs=256, budget=8192, free=900, spec=0):
            configuration = SimpleNamespace(
                max_num_seqs=seqs, max_num_batched_tokens=budget, enable_chunked_prefill=True, long_prefill_token_threshold=0
            )
            self.vllm_config = SimpleNamespace(
                max_concurrent_batches=1, speculative_config=None, parallel_config=SimpleNamespace(data_parallel_index=0)
            )
            self.scheduler_config = configuration
            self.cache_config = SimpleNamespace(enable_prefix_caching=True, prefix_caching_hash_algo="sha256")
            group = SimpleNamespace(block_size=16, req_to_blocks={})
            self.kv_cache_manager = SimpleNamespace(
                block_pool=Pool(free), coordinator=SimpleNamespace(single_type_managers=[group]), watermark_blocks=0
            )
            self.tables = group.req_to_blocks
            self.num_spec_tokens, self.num_sampled_tokens_per_step, self.num_lookahead_tokens = spec, 1, 0
            self.num_prefill_lookahead = 0
            self.policy, self.dynamic_sd_lookup = "fcfs", None
            self.max_num_active_reqs, self.max_num_scheduled_tokens, self.max_model_len = seqs, budget, 4096
            self.scheduler_reserve_full_isl, self.need_mamba_block_aligned_split = True, False
            self.connector = self.ec_connector = self.lora_config = None
            self.current_step = self.num_waiting_for_streaming_input = 0
            self._pause_state = SimpleNamespace(name="UNPAUSED")
            self.requests, self.running = {}, []
            self.waiting, self.kv_holding_waiting = deque(), deque()
            self.plan = None  # called by schedule(): what the test wants decided

        def add_request(self, request):
            self.requests[request.request_id] = request
            self.waiting.append(request)

        def schedule(self, throttle_prefills=False):
            self.current_step += 1
            output = self.plan(self)
            for id, n in output.num_scheduled_tokens.items():
                request = self.requests[id]
                request.num_computed_tokens += n
                request.is_prefill_chunk = request.num_computed_tokens < request.num_tokens
            return output

        def admit(self, request, before=0):
            self.waiting.remove(request)
            self.running.append(request)
            request.status, request.num_computed_tokens = Status.RUNNING, before

        def _handle_blocked_waiting_request(self, request):
            return request.status in (Status.WAITING, Status.PREEMPTED)

        def _get_local_prefix_cache_hit(self, request):
            return SimpleNamespace(blocks=((),)), 0, 0, False

        def _preempt_request(self, request, timestamp, drop_stale_output=False):
            self.running.remove(request)
            request.status, request.num_computed_tokens = Status.PREEMPTED, 0
            request.num_preemptions += 1
            self.waiting.appendleft(request)

        def update_from_output(self, scheduler_output, model_runner_output):
            output, model = scheduler_output, model_runner_output
            outs = []
            for id in output.num_scheduled_tokens:
                request = self.requests.get(id)
                tokens = model.sampled_token_ids[model.req_id_to_index[id]]
                if request is None or not tokens:
                    continue
                request.num_tokens += len(tokens)
                request.num_output_tokens += len(tokens)
                reason = None
                if request.num_output_tokens >= request.max_tokens:
                    request.status, reason = Status.FINISHED_LENGTH_CAPPED, 1
                    self._free_request(request)
                    self.running.remove(request)
                outs.append(SimpleNamespace(request_id=id, new_token_ids=tokens, finish_reason=reason))
            return {0: SimpleNamespace(outputs=outs, timestamp=7.25)}

        def finish_requests(self, ids, status):
            for id in list(self.requests) if ids is None else [ids] if isinstance(ids, str) else ids:
                if request := self.requests.get(id):
                    (self.running if request in self.running else self.waiting).remove(request)
                    request.status = status
                    self._free_request(request)

        def _free_request(self, request, delay_free_blocks=False):
            del self.requests[request.request_id]

        def _update_request_as_session(self, session, update):
            pass

        def reset_prefix_cache(self, reset_running_requests=False):
            while self.running:
                self._preempt_request(self.running[-1], 0.0)
            return True

    return Scheduler


def sampled(output, tokens=1, silent=()):
    ids = list(output.num_scheduled_tokens)
    return SimpleNamespace(
        req_id_to_index={id: i for i, id in enumerate(ids)},
        sampled_token_ids=[[] if id in silent else [5] * tokens for id in ids],
    )
