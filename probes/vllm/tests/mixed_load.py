"""`python mixed_load.py URL`: a few dozen unlike requests: streams, batches of eight with logprobs, hang-ups, long prompts."""

import asyncio
import random
import sys

import httpx


async def one(client, base, i, rng):
    kind = ("stream", "plain", "many", "hangup", "long", "chat", "logprobs", "stopstring")[i % 8]
    body = {"model": "tiny", "prompt": "shared beginning of every prompt, " * 4 + f"and number {i}", "max_tokens": 24,
            "ignore_eos": True}  # fmt: skip
    path = "/v1/completions"
    if kind in ("stream", "hangup"):
        body |= {"stream": True, "max_tokens": 40}
    elif kind == "many":
        body |= {"n": 8, "logprobs": 3, "stream": bool(i & 8)}
    elif kind == "long":
        body["prompt"] = "".join(rng.choices("abcdefgh ", k=2500))
    elif kind == "logprobs":
        body |= {"logprobs": 5, "presence_penalty": 0.5, "temperature": 1.0}
    elif kind == "stopstring":
        body |= {"stop": ["e", "a", "o", "<"], "max_tokens": 200}
    elif kind == "chat":
        path, body = "/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": f"number {i}"}],
                                              "max_tokens": 16, "stream": True}  # fmt: skip
    headers = {"X-Request-Id": f"cli-{i}", "traceparent": f"00-{i + 1:032x}-{i + 1:016x}-01"}
    await asyncio.sleep(rng.random() * 3)
    async with client.stream("POST", base + path, json=body, headers=headers) as response:
        parts = 0
        async for _ in response.aiter_raw():
            parts += 1
            if kind == "hangup" and parts >= 5:
                break
    return kind, response.status_code


async def main(base, count=48):
    rng = random.Random(7)
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(timeout=300, limits=limits) as client:
        jobs = [one(client, base, i, rng) for i in range(count)]
        bad = client.post(base + "/v1/completions", json={"model": "none", "prompt": "x"}, headers={"X-Request-Id": "bad"})
        got = await asyncio.gather(*jobs, bad, return_exceptions=True)
        await client.get(base + "/health")
    print([result if isinstance(result, tuple) else getattr(result, "status_code", result) for result in got])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
