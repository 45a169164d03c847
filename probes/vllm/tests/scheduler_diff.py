"""`python tests/scheduler_diff.py --out DIR --seed S --iterations N`: rings of the installed vLLM's schedulers, with the truth.

Runs of random configuration and load, each in a folder of its own: the ring that the probe wrote, and `truth.jsonl`, what the
scheduler's own state said after each call. One line a finished run on stdout. `internal/schedulerdiff` compares the two.
"""

import argparse
import json
import os
import random
import shutil
import sys
import traceback
from collections import Counter, deque
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "src")]
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import drive
import vllm.v1.core.block_pool as block_pool
import vllm.v1.core.kv_cache_manager as kv_cache_manager
import vllm.v1.core.sched.scheduler as scheduler_module
import vllm.v1.engine.core as engine_core
from truth import Truth
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from whylate_vllm import engine as probe
from whylate_vllm import hooks, ring, versions

REASONS = {"STOPPED": 1, "LENGTH_CAPPED": 2, "IGNORED": 2, "ABORTED": 3, "ERROR": 4, "REPETITION": 5}
FINISHED = {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}  # vLLM's FinishReason: ours

WEATHERS = {
    "plain": {},
    "tight pool": {"blocks": (70, 130), "limit": 300},
    "two in flight": {"asynchronous": True, "blocks": (90, 200)},
    "three in flight": {
        "asynchronous": True, "stages": 2, "runner": 2, "blocks": (70, 130), "limit": 300, "rate": 0.3, "trace": 0.8,
    },
    "priority": {"policy": "priority", "priorities": True, "blocks": (70, 110), "limit": 300, "rate": 0.3, "seqs": (12, 24)},
    "priority, two in flight": {"policy": "priority", "priorities": True, "asynchronous": True, "blocks": (70, 160)},
    "drafts": {"drafts": (1, 5)},
    "drafts, two in flight": {"drafts": (1, 5), "asynchronous": True, "blocks": (90, 200)},
    "grammars": {"grammars": True},
    "grammars, two in flight": {"grammars": True, "asynchronous": True},
    "sessions": {"sessions": True, "pace": 0.05},
    "sessions, two in flight": {"sessions": True, "pace": 0.3, "asynchronous": True, "blocks": (70, 200)},
    "adapters": {"adapters": (1, 3)},
    "resets": {"resets": 0.02},
    "resets, two in flight": {"resets": 0.02, "asynchronous": True},
    "pauses": {"pauses": 0.05},
    "no chunks, no cache": {"chunked": False, "caching": False, "budget": (1024, 1025)},
    "no chunks": {"chunked": False, "budget": (1024, 1025), "longest": 800, "rate": 0.6},
    "watermark": {"watermark": 0.05},
    "partial reservation": {"scheduler_reserve_full_isl": False, "blocks": (70, 160)},
    "long prefill threshold": {"long_prefill_token_threshold": 24, "max_num_active_seqs": 6, "seqs": (6, 24)},
    "huge pool": {"states": 0.05, "blocks": (20_000, 20_001), "seqs": (48, 64), "budget": (512, 1024), "rate": 0.5},
    "tiny batch": {"seqs": (1, 4), "budget": (16, 32), "rate": 0.2},
    "all at once": {
        "asynchronous": True, "policy": "priority", "priorities": True, "grammars": True, "adapters": (1, 3), "resets": 0.01,
        "pauses": 0.02, "blocks": (70, 200), "groups": 0.3,
    },
}  # fmt: skip
LOAD = "priorities", "grammars", "sessions", "pace", "rate", "longest", "limit", "groups"
OWN = "resets", "pauses", "trace", "states"


def configuration(weather: str, rng) -> dict:
    """The weather's own settings, and for the rest whatever comes; a pair is a range."""
    drawn = {
        "seqs": (4, 24), "budget": (48, 256), "blocks": (120, 400), "rate": round(rng.uniform(0.05, 0.35), 3),
        "groups": rng.choice((0.0, 0.2)), "limit": rng.choice((60, 300)), "resets": 0.0, "pauses": 0.0, "sessions": False,
    } | WEATHERS[weather]  # fmt: skip
    drawn = {name: rng.randrange(*value) if isinstance(value, tuple) else value for name, value in drawn.items()}
    if not drawn.get("chunked", True):
        drawn["length"] = 1024
    drawn["budget"] = max(drawn["budget"], drawn["seqs"])
    return drawn


class Run:
    """One scheduler under one load; every call is followed by a line of truth."""

    def __init__(self, folder: Path, number: int, attempt: int, seed: int, trace: float, states: float):
        self.rng = random.Random(f"{seed}/{number}/{attempt}")
        self.weather = list(WEATHERS)[number % len(WEATHERS)]
        self.settings = settings = configuration(self.weather, self.rng)
        os.environ["WHYLATE_RING_DIR"] = str(folder / "rings")
        os.environ["WHYLATE_INCARNATION"] = f"run-{number}"
        load = {name: settings[name] for name in LOAD if name in settings}
        if settings.get("adapters"):
            load["adapters"] = settings["adapters"] + 2
        self.scheduler = drive.build(
            folder / "model", **{name: value for name, value in settings.items() if name not in LOAD + OWN}
        )
        core = drive.Core(self.scheduler.vllm_config)
        self.load = drive.Traffic(self, self.rng.random(), reuse=0, make=core.receive, **load)
        self.truth, self.trace = Truth(type(self.scheduler)), settings.get("trace", trace)  # what is rare, more often
        self.states, self.chance = settings.get("states", states), random.Random(seed)  # apart: the load stays the same without
        self.compiled = set()
        self.flight, self.depth = deque(), versions.depth(self.scheduler.vllm_config)
        self.evicted = Counter()  # last user's id: blocks
        self.follow_blocks()
        self.lost = []  # preemptions by a reset, that the next decision reports
        self.iterations = self.traced = 0
        self.admitted = set()
        self.emitted = Counter()  # request id: tokens so far
        self.file = (folder / "truth.jsonl").open("w")
        self.say(e="run", number=number, attempt=attempt, weather=self.weather, seed=seed, settings=settings, depth=self.depth)

    def say(self, **line) -> None:
        self.file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def follow_blocks(self) -> None:
        """Whose blocks they were when they were freed, and which of them are evicted: on this scheduler's own objects."""
        manager = self.scheduler.kv_cache_manager
        pool, users = manager.block_pool, {}
        release, evict = manager.coordinator.free, pool._maybe_evict_cached_block
        self.released = []  # ids, in the order in which their blocks were given back

        def releasing(request_id, *args, **kwargs):
            self.released.append(request_id)
            for block in manager.coordinator.single_type_managers[0].req_to_blocks.get(request_id, ()):
                users[block.block_id] = request_id
            return release(request_id, *args, **kwargs)

        def evicting(block):
            evicted = evict(block)
            if evicted:
                self.evicted[users.get(block.block_id, "")] += 1
            return evicted

        manager.coordinator.free, pool._maybe_evict_cached_block = releasing, evicting

    # What the load calls: the scheduler's own methods, each told.

    @property
    def requests(self):
        return self.scheduler.requests

    def add_request(self, request) -> None:
        known = request.request_id in self.requests
        ended = self.ends()
        self.released.clear()
        self.scheduler.add_request(request)
        if not known:
            self.say(e="queued", id=request.request_id, prompt=request.num_prompt_tokens, max=request.max_tokens,
                     priority=request.priority, session=bool(request.resumable), grammar=request.use_structured_output,
                     adapter=request.lora_request.lora_int_id if request.lora_request else 0,
                     hashes=[number(h) for h in request.block_hashes],
                     external=request.request_id.rpartition("_")[2])  # fmt: skip
        self.tell_ends(ended)

    def finish_requests(self, ids, status):
        ended = self.ends()
        self.released.clear()
        result = self.scheduler.finish_requests(ids, status)
        self.tell_ends(ended)
        return result

    def ends(self) -> dict:
        return dict(self.requests)

    def tell_ends(self, before: dict) -> None:
        for id in self.released:  # the order matters: it is that of the free blocks
            if (request := before.get(id)) and id not in self.requests:
                self.say(e="finished", id=id, reason=reason(request), output=request.num_output_tokens)

    # The engine's loop.

    def go(self, steps: int) -> None:
        """An assertion of the engine's own ends the run: what it did until then is still to be told rightly."""
        failure = ""
        try:
            self.iterate(steps)
        except AssertionError as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            if "/vllm/v1/" not in frame.filename:
                raise
            failure = f"{frame.name}: {frame.line}"
        self.say(e="end", iterations=self.iterations, traced=self.traced, failure=failure, evicted=self.evicted)
        self.file.close()

    def iterate(self, steps: int) -> None:
        rng, s = self.rng, self.scheduler
        while self.iterations < steps:
            self.load.turn()
            if rng.random() < self.settings["resets"] and s.running:
                self.reset()
            if rng.random() < self.settings["pauses"]:
                s.set_pause_state(rng.choice(list(PauseState)))
                self.say(e="pause", state=s.pause_state.value)
            if not s.has_requests() and not self.flight:
                continue
            self.launch()
            if rng.random() < 0.5:  # what comes and goes while the model is at work
                self.load.turn()
            if len(self.flight) >= self.depth:
                self.complete()
        while self.flight:
            self.complete()
        self.finish_requests(None, RequestStatus.FINISHED_ABORTED)
        self.launch()  # as the engine does, to tell its workers
        self.complete()

    def reset(self) -> None:
        for r in self.scheduler.running:
            self.lost.append({"victim": r.request_id, "lost": r.num_computed_tokens, "output": self.emitted[r.request_id],
                              "blocks": self.held(r), "reset": True})  # fmt: skip
        self.scheduler.reset_prefix_cache(reset_running_requests=True)
        self.say(e="reset")

    def held(self, request) -> int:
        tables = self.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks
        return len(tables.get(request.request_id, ()))

    def tell_state(self) -> None:
        """All that the next decision depends on."""
        s, pool = self.scheduler, self.scheduler.kv_cache_manager.block_pool
        manager = s.kv_cache_manager.coordinator.single_type_managers[0]

        def sequence(r):
            return {
                "id": r.request_id, "tokens": r.num_tokens, "computed": r.num_computed_tokens,
                "placeholders": r.num_output_placeholders, "drafts": len(r.spec_token_ids), "prefilling": r.is_prefill_chunk,
                "in_flight": getattr(r, "num_in_flight_tokens", 0), "stale": getattr(r, "num_stale_output_tokens", 0),
                "drop": getattr(r, "drop_stale_output", False), "next": getattr(r, "next_decode_eligible_step", 0),
                "cached": manager.num_cached_block.get(r.request_id, 0),
                "blocks": [b.block_id for b in manager.req_to_blocks.get(r.request_id, ())],
                "hashes": [number(h) for h in r.block_hashes],
            }  # fmt: skip

        held = s.kv_holding_waiting if hasattr(s, "kv_holding_waiting") else s.skipped_waiting
        state = {
            "step": getattr(s, "current_step", self.iterations), "running": [sequence(r) for r in s.running],
            "waiting": [sequence(r) for r in s.waiting], "held": [sequence(r) for r in held],
            "free": [b.block_id for b in pool.free_block_queue.get_all_free_blocks()],
            "cached": [
                {"hash": number(hash), "blocks": list(of) if isinstance(of, dict) else [of.block_id]}
                for hash, of in pool.cached_block_hash_to_block._cache.items()
            ],
        }  # fmt: skip
        self.say(e="state", before=state)

    def launch(self) -> None:
        if self.settings.get("grammars"):
            for r in self.scheduler.requests.values():
                grammar = r.structured_output_request and r.structured_output_request.grammar
                if grammar is not None and r.request_id not in self.compiled:
                    self.compiled.add(r.request_id)
                    self.say(e="grammar", id=r.request_id, fails=isinstance(grammar, Exception))
        if self.chance.random() < self.states:
            self.tell_state()
        s, traced = self.scheduler, self.rng.random() < self.trace
        before = {r.request_id: (r.num_computed_tokens, r.num_preemptions, r) for r in s.running}
        if traced:
            with self.truth.watching(s):
                output = drive.launch(s)
        else:
            output = drive.launch(s)
        self.iterations += 1
        self.traced += traced
        preempted, self.lost = self.lost, []
        for id, (computed, count, request) in before.items():
            if request.num_preemptions > count:
                preempted.append({"victim": id, "lost": computed, "output": self.emitted[id]})
                if traced:
                    by, free, blocks = self.truth.preemptions[id][0], *self.truth.preemptions[id][2:]
                    preempted[-1] |= {"by": by, "free": free, "blocks": blocks}
        members = {
            id: (n, r.num_computed_tokens - n, r.num_tokens, r.num_prompt_tokens)
            for id, n in output.num_scheduled_tokens.items()
            if (r := s.requests[id])
        }
        running, waiting = s.get_request_counts()
        line = {
            "e": "scheduled", "n": self.iterations, "running": running, "waiting": waiting,
            "free": s.kv_cache_manager.block_pool.get_num_free_blocks(), "members": members,
            "alias": getattr(s, "current_step", 0),
        }  # fmt: skip
        if preempted:
            line["preempted"] = preempted
        fresh = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs if new.req_id not in self.admitted}
        if fresh:
            line["new"] = fresh
            self.admitted |= fresh.keys()
        if output.scheduled_spec_decode_tokens:
            line["drafts"] = {id: len(tokens) for id, tokens in output.scheduled_spec_decode_tokens.items()}
        if traced:
            queued = (*s.waiting, *(s.kv_holding_waiting if hasattr(s, "kv_holding_waiting") else s.skipped_waiting))
            line["reasons"] = self.truth.reasons(s, output, queued)
            line["head"] = self.truth.head.request_id if self.truth.head else ""
            line["need"] = self.truth.need
        line["waits"] = [id for id in s.requests if id not in members]
        self.say(**line)
        self.flight.append((self.iterations, output))

    def complete(self) -> None:
        s = self.scheduler
        iteration, output = self.flight.popleft()
        result = drive.execute(output, self.rng)
        sampled = dict(zip(result.req_ids, map(len, result.sampled_token_ids)))
        ended = self.ends()
        drafted = {id: ended[id].num_computed_tokens for id in output.scheduled_spec_decode_tokens if id in ended}
        outputs = s.update_from_output(output, result)
        emitted = {o.request_id: len(o.new_token_ids) for out in outputs.values() for o in out.outputs}
        self.emitted.update(emitted)
        self.say(
            e="done", n=iteration, emitted={id: n for id, n in emitted.items() if n},
            rejected={id: n - ended[id].num_computed_tokens for id, n in drafted.items() if n > ended[id].num_computed_tokens},
            discarded=sum(n - emitted.get(id, 0) for id, n in sampled.items()),
            finished={id: (reason(r), r.num_output_tokens) for id, r in ended.items() if id not in s.requests},
            accepted={id: sampled[id] - 1 for id in output.scheduled_spec_decode_tokens if sampled[id]},
        )  # fmt: skip
        if s.num_spec_tokens and self.depth == 1:
            drive.draft(s, self.rng)
            self.say(e="drafted", drafted={r.request_id: len(r.spec_token_ids) for r in s.running if r.spec_token_ids})


def number(hash: bytes) -> int:
    """Enough of a block's hash to tell it from others, as a number that JSON keeps."""
    return int.from_bytes(hash[:6])


def reason(request) -> int:
    return REASONS[request.status.name.removeprefix("FINISHED_")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=5000)
    parser.add_argument("--trace", type=float, default=0.15, help="share of the iterations that are followed line by line")
    parser.add_argument("--states", type=float, default=1, help="share of the iterations whose state is told first")
    parser.add_argument("--only", type=int, help="this run alone")
    arguments = parser.parse_args()
    os.environ["WHYLATE_RING_BYTES"] = str(48 << 20)  # nothing may be overwritten
    probe.hook_scheduler(scheduler_module)
    probe.hook_block_pool(block_pool)
    probe.hook_cache_manager(kv_cache_manager)
    probe.hook_engine_core(engine_core)
    each = -(-arguments.iterations // len(WEATHERS))
    rounds = -(-each // 2000)
    runs = len(WEATHERS) * rounds
    steps = -(-arguments.iterations // runs)
    for number in range(runs) if arguments.only is None else [arguments.only]:
        left, attempt = steps, 0
        while left > 0:
            folder = arguments.out / f"{number:03d}-{attempt}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            run = Run(folder, number, attempt, arguments.seed, arguments.trace, arguments.states)
            run.go(left)
            for opened in list(ring.rings):
                assert opened.words[ring.DROPPED] == 0
                opened.close()
            assert all(guard.on for guard in hooks.Guard.all), "a hook disabled itself"
            print(json.dumps({"folder": str(folder)}), flush=True)
            left, attempt = left - max(run.iterations, 1), attempt + 1


if __name__ == "__main__":
    main()
