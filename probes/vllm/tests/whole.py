"""A whole engine of stubs, API server included, that a seed drives; what it does is compared with the probe on and off.

As a script: `python whole.py SEED TURNS` prints a digest of all that it did; `--user ID` gives up the rights of root before.
The engine can be generated anew with a method renamed, or with a new parameter (`variant`).
"""

import ast
import hashlib
import inspect
import json
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "src")]

import stubs

import whylate_vllm  # noqa: F401  all of it, before the rights of root go
from whylate_vllm import plugin, ring

LENGTH, ABORT = 1, 2


class Engine:
    """The classes that the probe hooks, fresh ones, in a module of their own."""

    def __init__(self):
        class BlockPool(stubs.Pool):
            def cache_full_blocks(self, request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id):
                self.filled = getattr(self, "filled", 0) + num_full_blocks - num_cached_blocks

            def _maybe_evict_cached_block(self, block):
                return block.block_hash is not None

        class KVCacheManager:
            def free(self, request):
                self.freed = getattr(self, "freed", 0) + 1

            def pop_blocks_for_free(self, request):
                return []

        class EngineCore:
            def __init__(self, vllm_config):
                self.vllm_config = vllm_config

            def preprocess_add_request(self, request):
                made = stubs.Request(request.request_id, request.prompt, request.limit, hashes=[bytes([7]) * 32] * 3)
                made.arrival_time = request.arrival_time
                return made, 0

        class RequestState:
            def __init__(self, request_id):
                self.request_id, self.streaming_input, self.tokens = request_id, False, 0
                self.detokenizer = SimpleNamespace(num_output_tokens=lambda: self.tokens)

            def make_request_output(self, new_token_ids, pooling_output, finish_reason, stop_reason, kv_transfer_params=None):
                self.tokens += len(new_token_ids)
                return self.request_id, list(new_token_ids), finish_reason

        class OutputProcessor:
            def __init__(self):
                self.request_states = {}

            def add_request(self, request, prompt, parent_req=None, request_index=0, queue=None):
                self.request_states[request.request_id] = RequestState(request.request_id)

            def process_outputs(self, engine_core_outputs, engine_core_timestamp=None, iteration_stats=None):
                made = []
                for out in engine_core_outputs:
                    if state := self.request_states.get(out.request_id):
                        made.append(state.make_request_output(out.new_token_ids, None, out.finish_reason, stop_reason=None))
                        if out.finish_reason is not None:
                            self._finish_request(state)
                return made

            def _finish_request(self, req_state):
                del self.request_states[req_state.request_id]

            def abort_requests(self, request_ids, internal):
                states = [self.request_states.pop(id) for id in request_ids if id in self.request_states]
                for state in states:
                    state.make_request_output([], None, ABORT, None)
                return [state.request_id for state in states]

            def propagate_error(self, error):
                self.error = error

        class Worker:
            def __init__(self, vllm_config):
                self.vllm_config, self.rank = vllm_config, 0

            def execute_model(self, scheduler_output):
                return None

            def sample_tokens(self, grammar_output):
                return grammar_output

        class GPUModelRunner:
            def _determine_batch_execution_and_padding(self, num_tokens):
                return SimpleNamespace(name="FULL"), SimpleNamespace(num_tokens=-(-num_tokens // 8) * 8)

        def dispatch_cg_and_sync_dp(num_tokens):
            return SimpleNamespace(cg_mode=SimpleNamespace(name="FULL"), num_tokens=num_tokens), None

        class Serving:
            async def _check_model(self, request):
                return None

        class App:
            middleware_stack = None

            def build_middleware_stack(self):
                return answer

        async def answer(scope, receive, send):
            body = (await receive())["body"]
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for byte in body:
                await send({"type": "http.response.body", "body": bytes([byte ^ 1]), "more_body": True})
            await send({"type": "http.response.body"})

        def build_app(args):
            return App()

        self.module = SimpleNamespace(
            __name__="vllm", Scheduler=stubs.make_scheduler_class(), BlockPool=BlockPool, KVCacheManager=KVCacheManager,
            EngineCore=EngineCore, OutputProcessor=OutputProcessor, RequestState=RequestState, build_app=build_app,
            Worker=Worker, GPUModelRunner=GPUModelRunner, dispatch_cg_and_sync_dp=dispatch_cg_and_sync_dp, Serving=Serving,
        )  # fmt: skip

    def hook(self):
        for hook in plugin.HOOKS.values():
            hook(self.module)
        return self

    def start(self, seed: int):
        """Its objects, as vLLM makes them."""
        module, self.rng = self.module, random.Random(seed)
        self.scheduler = s = module.Scheduler(seqs=6, budget=64)
        manager, plain = module.KVCacheManager(), s.kv_cache_manager
        vars(manager).update(vars(plain), block_pool=module.BlockPool(900))
        s.kv_cache_manager = manager
        self.core, self.processor = module.EngineCore(s.vllm_config), module.OutputProcessor()
        s.vllm_config.compilation_config = SimpleNamespace()
        self.worker, self.runner, self.serving = module.Worker(s.vllm_config), module.GPUModelRunner(), module.Serving()
        self.app = module.build_app(None).build_middleware_stack()
        self.count, self.trace = 0, []
        return self

    def arrive(self):
        rng, self.count = self.rng, self.count + 1
        new = SimpleNamespace(
            request_id=f"cmpl-{self.count}-aa", external_req_id=f"cmpl-{self.count}", prompt=rng.randrange(1, 90),
            limit=rng.randrange(1, 9), arrival_time=1.5, prompt_token_ids=[1] * 3, prompt_embeds=None,
        )  # fmt: skip
        self.trace.append(exchange(self.app, bytes([65 + self.count % 26])))
        self.trace.append(at_once(self.serving._check_model(new)))
        self.processor.add_request(new, None, queue=True)
        made, wave = self.core.preprocess_add_request(new)
        self.trace.append((made.request_id, wave))
        self.scheduler.add_request(made)

    def plan(self, scheduler):
        """Some of those that run get tokens, a few lose their blocks, and some that wait are let in."""
        rng, budget, tokens = self.rng, 64, {}
        if len(scheduler.running) > 2 and rng.random() < 0.1:
            request = scheduler.running[0]  # for which it preempts: the probe finds it by this name
            scheduler._preempt_request(scheduler.running[-1], 0.0)
            del request
        for request in scheduler.running:
            left = max(request.num_tokens - request.num_computed_tokens, 1)
            if budget and rng.random() < 0.95:
                tokens[request.request_id] = n = min(left, budget)
                budget -= n
        while scheduler.waiting and budget and len(scheduler.running) < scheduler.max_num_active_reqs:
            request = scheduler.waiting[0]
            if not scheduler._handle_blocked_waiting_request(request):
                break
            scheduler._get_local_prefix_cache_hit(request)
            scheduler.admit(request)
            tokens[request.request_id] = n = min(request.num_tokens, budget)
            budget -= n
        pool = scheduler.kv_cache_manager.block_pool
        for id in tokens:
            pool.cache_full_blocks(scheduler.requests[id], [], 0, rng.randrange(3), 16, kv_cache_group_id=0)
            pool._maybe_evict_cached_block(SimpleNamespace(block_id=rng.randrange(900), block_hash=None))
        return stubs.Output(tokens)

    def turn(self, arrivals: float = 0.4):
        rng, s = self.rng, self.scheduler
        while rng.random() < arrivals:
            self.arrive()
        s.plan = self.plan
        output = s.schedule(throttle_prefills=False)
        self.trace.append(self.worker.execute_model(output))
        self.trace.append(self.runner._determine_batch_execution_and_padding(output.total_num_scheduled_tokens))
        self.trace.append(self.module.dispatch_cg_and_sync_dp(output.total_num_scheduled_tokens))
        self.trace.append(self.worker.sample_tokens(None))
        inner = {id for id in output.num_scheduled_tokens if s.requests[id].is_prefill_chunk}
        self.trace.append(list(output.num_scheduled_tokens.items()))
        results = s.update_from_output(output, model_runner_output=stubs.sampled(output, silent=inner))
        for result in results.values():
            self.trace.append([(out.request_id, out.new_token_ids, out.finish_reason) for out in result.outputs])
            self.trace.append(self.processor.process_outputs(result.outputs, result.timestamp))
            for out in result.outputs:
                if out.finish_reason is not None:
                    s.kv_cache_manager.free(request=out)
        if s.requests and rng.random() < 0.05:
            id = rng.choice(list(s.requests))
            self.trace.append(self.processor.abort_requests([id], True))
            s.finish_requests(id, stubs.Status.FINISHED_ABORTED)
        if rng.random() < 0.01:
            self.trace.append(s.reset_prefix_cache())

    def turns(self, count: int):
        for _ in range(count):
            self.turn()
        return self

    def digest(self) -> str:
        state = [(r.request_id, r.status, r.num_tokens, r.num_computed_tokens) for r in self.scheduler.requests.values()]
        pool = self.scheduler.kv_cache_manager.block_pool
        facts = self.trace, state, sorted(self.processor.request_states), pool.filled, self.count
        return hashlib.sha256(json.dumps(facts, default=repr).encode()).hexdigest()


def exchange(app, body: bytes) -> list:
    """One HTTP request and its answer, without an event loop: nothing here ever waits."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        sent.append((message["type"], message.get("body", b"").decode()))

    at_once(app({"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}, receive, send))
    return sent


def at_once(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the application waits")


def run(seed: int = 1, turns: int = 200, hooked: bool = True) -> str:
    engine = Engine()
    if hooked:
        engine.hook()
    return engine.start(seed).turns(turns).digest()


# Another version of the engine.


class Changed(ast.NodeTransformer):
    """`name` is called `name_v2`, or has a parameter more: the last, or the first."""

    def __init__(self, name: str, change: str):
        self.name, self.change = name, change

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        if node.name == self.name:
            if self.change == "renamed":
                node.name += "_v2"
            elif self.change == "last":
                node.args.kwonlyargs.append(ast.arg("added"))
                node.args.kw_defaults.append(ast.Constant(None))
            else:
                node.args.args.insert(int(node.args.args[0].arg == "self"), ast.arg("added"))
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Call(self, node):
        self.generic_visit(node)
        if getattr(node.func, "attr", "") == self.name and self.change == "first":
            node.args.insert(0, ast.Constant(0))
        return node

    def visit_Attribute(self, node):
        self.generic_visit(node)
        if node.attr == self.name and self.change == "renamed":
            node.attr += "_v2"
        return node

    def visit_keyword(self, node):  # of the module: `build_app=build_app`
        self.generic_visit(node)
        if node.arg == self.name and self.change == "renamed":
            node.arg += "_v2"
            node.value = ast.Name(node.arg, ast.Load())
        return node


def variant(name: str, change: str) -> Engine:
    """An engine from changed sources of this file and of stubs.py."""
    made = {}
    for module in stubs, sys.modules[__name__]:
        tree = ast.fix_missing_locations(Changed(name, change).visit(ast.parse(inspect.getsource(module))))
        namespace = SimpleNamespace()
        vars(namespace).update(__name__=module.__name__, __file__=module.__file__)
        exec(compile(tree, module.__file__, "exec"), vars(namespace))
        if made:
            namespace.stubs = made["stubs"]
        made[module.__name__] = namespace
    return made[__name__].Engine()


def main() -> None:
    seed, turns, *options = sys.argv[1:]
    if options[:1] == ["--user"]:
        os.setgroups([])
        os.setgid(int(options[1]))
        os.setuid(int(options[1]))
    print(json.dumps({"digest": run(int(seed), int(turns)), "rings": [r.path for r in ring.rings]}))


if __name__ == "__main__":
    main()
