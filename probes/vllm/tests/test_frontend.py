"""The ASGI wrapper and the output processor's hooks, on stubs."""

import asyncio
from contextlib import suppress
from enum import IntEnum
from hashlib import blake2b
from types import SimpleNamespace

import pytest

from whylate_vllm import frontend, hooks, ring
from whylate_vllm.dump import decode, frames

START = {"type": "http.response.start", "status": 200, "headers": []}


def part(body=b"", more=True):
    return {"type": "http.response.body", "body": body, "more_body": more}


def scope(method="POST", kind="http", **headers):
    headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": kind, "method": method, "path": "/v1/completions", "query_string": b"q=1", "headers": headers}


def call(app, request=None, receive=None, cancel_after=None, watch=frontend.Watch):
    """The messages that the server saw, and how the application ended."""
    seen = []

    async def server_receive():
        return receive() if receive else {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message):
        seen.append(message)

    async def main():
        task = asyncio.ensure_future(watch(app)(request or scope(), server_receive, send))
        if cancel_after is not None:
            await asyncio.sleep(cancel_after)
            task.cancel()
        return await task

    try:
        end = asyncio.run(main())
    except BaseException as error:
        end = error
    return seen, end


def written(*names):
    return [m["fields"] for m in everything() if m["message"] in names]


def everything():
    return [decode(frame) for frame in frames(frontend.recorder().ring.path)]


def last_byte():
    (fields,) = written("last_byte")
    return fields


async def stream(scope, receive, send):
    await send(START)
    for body in b"one", b"", b"three":
        await send(part(body))
    await send(part(b"end", more=False))


def test_a_stream_passes_as_it_is_and_is_measured():
    request = scope(x_request_id="cli-7", traceparent="00-ab-cd-01")
    seen, end = call(stream, request)
    assert end is None and [m.get("body") for m in seen] == [None, b"one", b"", b"three", b"end"] and seen[0] is START
    assert written("received") == [{"http": 1, "request_id": "cli-7", "traceparent": "00-ab-cd-01", "path": "/v1/completions"}]
    assert written("first_byte") == [{"http": 1, "status": 200}]
    f = last_byte()
    assert (f["http"], f["status"], f["end"], f["chunks"], f["bytes"], f["disconnect"]) == (1, 200, 0, 3, 11, 0)
    assert f["wait"] > 0
    order = [m for m in everything() if m["message"] in ("received", "first_byte", "last_byte")]
    assert [m["time"] for m in order] == sorted(m["time"] for m in order)


def test_what_the_application_is_given_is_the_servers():
    given = {}

    async def app(scope, receive, send):
        given.update(scope=scope, message=await receive())
        await send(START), await send(part(b"x", more=False))

    request, message = scope(), {"type": "http.request", "body": b"prompt", "more_body": False}
    call(app, request, lambda: message)
    assert given == {"scope": request, "message": message} and given["scope"] is request and given["message"] is message
    assert b"prompt" not in open(frontend.recorder().ring.path, "rb").read()


@pytest.mark.parametrize("request_", [scope("GET"), {"type": "lifespan"}, {"type": "websocket", "path": "/v1/realtime"}])
def test_only_posts_are_recorded(request_):
    taken = []

    async def app(scope, receive, send):
        taken.append((scope, receive, send))

    call(app, request_)
    assert len(taken) == 1 and not ring.rings


def test_a_client_that_hangs_up():
    async def app(scope, receive, send):
        await send(START)
        await send(part(b"one"))
        while (await receive())["type"] != "http.disconnect":
            pass

    messages = iter([{"type": "http.request"}, {"type": "http.disconnect"}, {"type": "http.disconnect"}])
    call(app, receive=lambda: next(messages))
    f = last_byte()
    assert f["end"] == 1 and f["disconnect"] > 0 and f["chunks"] == 1


def test_a_disconnect_after_the_end_is_none():
    """What uvicorn's `receive` says once the response is complete."""

    async def app(scope, receive, send):
        await stream(scope, receive, send)
        await receive()

    call(app, receive=lambda: {"type": "http.disconnect"})
    assert (last_byte()["end"], last_byte()["disconnect"]) == (0, 0)


def test_a_cancelled_exchange():
    async def app(scope, receive, send):
        await send(START)
        await asyncio.sleep(10)

    _, end = call(app, cancel_after=0.01)
    assert isinstance(end, asyncio.CancelledError) and last_byte()["end"] == 1


def test_an_error_of_the_application_is_its_own():
    class Broken(Exception):
        pass

    async def app(scope, receive, send):
        await send(START)
        raise Broken("mine")

    _, end = call(app)
    assert isinstance(end, Broken) and str(end) == "mine" and end.__context__ is None
    assert (last_byte()["end"], last_byte()["status"]) == (2, 200)


def test_an_error_of_the_server_while_sending_is_its_own():
    seen = []

    async def main():
        async def send(message):
            raise OSError("gone")

        async def receive():
            return {"type": "http.disconnect"}

        async def app(scope, receive, send):
            await receive()
            await send(START)

        with pytest.raises(OSError, match="gone"):
            await frontend.Watch(app)(scope(), receive, send)

    asyncio.run(main())
    assert not seen and last_byte()["end"] == 1


def test_status_and_exactly_one_end():
    async def app(scope, receive, send):
        await send(START | {"status": 503})
        await send({"type": "http.response.body"})
        await send(part(b"too late", more=False))

    call(app)
    assert (last_byte()["status"], last_byte()["chunks"]) == (503, 0) and not written("first_byte")


def test_an_error_of_ours_ends_only_ourselves(monkeypatch, caplog):
    def broken(self, *facts):
        raise RuntimeError("of our own making")

    monkeypatch.setattr(frontend.Exchange, "sent", broken)
    for _ in range(2):
        seen, end = call(stream)
        assert end is None and [m.get("body") for m in seen] == [None, b"one", b"", b"three", b"end"]
    assert caplog.text.count("whylate disabled a hook after an error: ASGI: RuntimeError") == 1
    (notice,) = written("notice")
    assert notice["code"] == 1 and notice["text"].startswith("ASGI: RuntimeError: of our own making (test_frontend.py:")
    assert len(written("received")) == 1


def test_without_a_ring_the_application_is_served(monkeypatch, caplog):
    monkeypatch.setenv("WHYLATE_RING_DIR", "/proc/self/whylate")
    seen, end = call(stream)
    assert end is None and len(seen) == 5 and len(caplog.records) == 1


class App:
    """As FastAPI: a stack that is built on the first call, or, by vLLM's SageMaker part, before."""

    def __init__(self, built):
        self.middleware_stack = stream if built else None

    def build_middleware_stack(self):
        return stream


@pytest.mark.parametrize("built", [False, True])
def test_the_app_is_watched_from_outside(built):
    app, module = App(built), SimpleNamespace(__name__="entry")
    module.build_app = lambda args: app
    frontend.hook_build_app(module)
    frontend.hook_build_app(module)
    assert module.build_app(None) is app
    call(app.middleware_stack if built else app.build_middleware_stack(), watch=lambda app: app)
    assert len(written("received")) == 1


def test_an_app_of_another_kind_is_left_alone(caplog):
    module = SimpleNamespace(__name__="entry", build_app=lambda: "an app")
    frontend.hook_build_app(module)
    assert module.build_app() == "an app" and "entry.build_app" in caplog.text


# The output processor.


class FinishReason(IntEnum):
    STOP, LENGTH, ABORT, ERROR, REPETITION = range(5)


def engine():
    """vLLM's OutputProcessor and RequestState, as far as the hooks look at them."""

    class RequestState:
        def __init__(self, id, queue=True):
            self.request_id, self.queue, self.streaming_input, self.tokens = id, queue, False, 0
            self.detokenizer = SimpleNamespace(num_output_tokens=lambda: self.tokens)

        def make_request_output(self, new_token_ids, pooling_output, finish_reason, stop_reason, kv=None, ec=None, error=None):
            return (self.request_id, finish_reason)

    class OutputProcessor:
        def __init__(self):
            self.request_states = {}

        def add_request(self, request, prompt, parent_req=None, request_index=0, queue=None):
            self.request_states[request.request_id] = RequestState(request.request_id, queue)

        def process_outputs(self, engine_core_outputs, engine_core_timestamp=None, iteration_stats=None, weight_version=None):
            for out in engine_core_outputs:
                if state := self.request_states.get(out.request_id):
                    state.tokens += 1
                    state.make_request_output([1], None, out.finish_reason, out.stop_reason, None, None, error=None)
                    if out.finish_reason is not None and not state.streaming_input:
                        self._finish_request(state)
            return "processed"

        def _finish_request(self, req_state):
            del self.request_states[req_state.request_id]

        def abort_requests(self, request_ids, internal):
            aborted = []
            for id in request_ids:
                if state := self.request_states.pop(id, None):
                    aborted.append(id)
                    if state.queue:
                        state.make_request_output(
                            new_token_ids=[], pooling_output=None, finish_reason=FinishReason.ABORT, stop_reason=None
                        )
                elif id == "parent":
                    aborted += self.abort_requests(list(self.request_states), True)
            return aborted

        def propagate_error(self, error):
            return None

    frontend.hook_output_processor(SimpleNamespace(OutputProcessor=OutputProcessor, RequestState=RequestState))
    return OutputProcessor()


def new(id, external="cmpl-1", prompt=5):
    return SimpleNamespace(request_id=id, external_req_id=external, prompt_token_ids=[1] * prompt, prompt_embeds=None)


def out(id, finish_reason=None, stop_reason=None):
    return SimpleNamespace(request_id=id, finish_reason=finish_reason, stop_reason=stop_reason)


def test_one_http_request_makes_several_sequences():
    processor = engine()

    async def app(scope, receive, send):
        parent = SimpleNamespace(request_id="cmpl-1-aa")
        for i in range(3):
            processor.add_request(new(f"{i}_cmpl-1-aa"), None, parent, i, True)
        await asyncio.create_task(later())
        await stream(scope, receive, send)

    async def later():  # a task that the handler started sees it, too
        processor.add_request(new("other", "x", 7), None, queue=True)

    call(app)
    processor.add_request(new("offline"), None)
    got = written("submitted")
    assert [(f["http"], f["index"], f["prompt"], f["id"], f["parent"]) for f in got] == [
        (1, 0, 5, "0_cmpl-1-aa", "cmpl-1-aa"),
        (1, 1, 5, "1_cmpl-1-aa", "cmpl-1-aa"),
        (1, 2, 5, "2_cmpl-1-aa", "cmpl-1-aa"),
        (1, 0, 7, "other", ""),
        (0, 0, 5, "offline", ""),
    ]
    assert [f["handle"] for f in got] == [1, 2, 3, 4, 5]


def test_each_sequence_is_answered_once_and_truly():
    processor = engine()
    for id in "length", "token", "string", "eos", "hangup", "engine":
        processor.add_request(new(id), None, queue=True)
    processor.process_outputs([out("length"), out("string"), out("hangup")], 1.0)
    processor.process_outputs(
        [out("length", FinishReason.LENGTH), out("token", FinishReason.STOP, 17), out("string", FinishReason.STOP, "END"),
         out("eos", FinishReason.STOP), out("engine", FinishReason.ABORT)], 2.0,
    )  # fmt: skip
    assert processor.abort_requests(["string", "hangup", "unknown"], True) == ["hangup"]
    processor.abort_requests(["hangup"], True)
    assert [(f["handle"], f["reason"], f["by"], f["output"]) for f in written("answered")] == [
        (1, 2, 0, 2), (2, 1, 1, 1), (3, 1, 2, 2), (4, 1, 0, 1), (6, 3, 0, 1), (5, 3, 3, 1)
    ]  # fmt: skip


def test_aborting_a_parent_and_sequences_without_a_queue():
    processor = engine()
    processor.add_request(new("a"), None, queue=True)
    processor.add_request(new("b"), None, queue=False)
    processor.abort_requests(["parent"], True)
    assert [(f["reason"], f["by"]) for f in written("answered")] == [(3, 3), (3, 3)] and not frontend.recorder().aborting


def test_a_dead_engine_ends_everything():
    processor = engine()
    processor.add_request(new("a"), None, queue=True)
    processor.propagate_error(RuntimeError())
    processor.abort_requests(["a"], True)
    assert [(f["reason"], f["by"]) for f in written("answered")] == [(4, 0)]


def test_a_session_is_not_answered_before_its_end():
    processor = engine()
    processor.add_request(new("a"), None, queue=True)
    state = processor.request_states["a"]
    state.streaming_input = True
    processor.process_outputs([out("a", FinishReason.LENGTH)], 1.0)
    assert not written("answered")
    processor._finish_request(state)  # as vLLM does when the input ends after the engine has
    assert [(f["handle"], f["reason"]) for f in written("answered")] == [(1, 0)]


def test_deliveries():
    processor = engine()
    for id in "abc":
        processor.add_request(new(id), None, queue=True)
    for ids in "ab", "ab", "abc", "xab", "":
        assert processor.process_outputs([out(id) for id in ids], 12.5, None, weight_version="w") == "processed"
    got = [(m["flags"], m["fields"]["handle"]) for m in everything() if m["message"] == "delivered"]
    assert got == [(0, [1, 2]), (1, []), (0, [1, 2, 3]), (0, [1, 2]), (0, [])]
    assert {f["key"] for f in written("delivered")} == {12.5}


def test_an_error_of_ours_does_not_reach_the_engine(monkeypatch, caplog):
    processor = engine()
    monkeypatch.setattr(frontend, "answered", lambda *_: 1 / 0)
    processor.add_request(new("a"), None, queue=True)
    state = processor.request_states["a"]
    assert state.make_request_output([1], None, FinishReason.STOP, None) == ("a", FinishReason.STOP)
    assert state.make_request_output([1], None, FinishReason.STOP, None) == ("a", FinishReason.STOP)
    assert caplog.text.count("RequestState.make_request_output: ZeroDivisionError") == 1


def test_each_thread_has_a_ring_of_its_own():
    processor = engine()
    processor.add_request(new("a"), None, queue=True)

    async def main():
        await asyncio.to_thread(processor.add_request, new("b"), None)

    with suppress(RuntimeError):
        asyncio.run(main())
    assert len(ring.rings) == 2 and ring.rings[1].path.endswith("frontend-loop-2.ring")
    assert all(guard.on for guard in hooks.Guard.all)


def test_without_the_hook_on_ends_nothing_grows(monkeypatch):
    monkeypatch.setattr(frontend, "AT_MOST", 10)
    processor = engine()
    for guard in hooks.Guard.all:
        guard.on &= "request_output" not in guard.name and "_finish_request" not in guard.name
    for i in range(100):
        processor.add_request(new(f"r{i}"), None, queue=True)
        processor.process_outputs([out(f"r{i}", FinishReason.STOP)], 1.0)
    assert len(frontend.recorder().handles) <= 12 and len(written("submitted")) == 100


KEY = "0f" * 32


@pytest.fixture
def key(tmp_path, monkeypatch):
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    monkeypatch.setenv("WHYLATE_KEY_FILE", str(path))
    return path


def asking(user):
    """An endpoint of vLLM's: it looks at the parsed request's model first."""

    class Serving:
        async def _check_model(self, request):
            return None

    module = SimpleNamespace(Serving=Serving, imported=dict)
    frontend.hook_serving(module)

    async def app(scope, receive, send):
        await module.Serving()._check_model(SimpleNamespace(user=user))
        await stream(scope, receive, send)

    return app


def expected(kind, value):
    digest = blake2b(value, digest_size=8, key=bytes.fromhex(KEY), person=kind).digest()
    return int.from_bytes(digest, "little")


def test_labels_are_keyed_hashes(key, monkeypatch):
    for kind in "TENANT", "CLASS", "ROUTE":
        monkeypatch.setenv(f"WHYLATE_{kind}_HEADER", f"X-{kind.title()}")
    call(asking("somebody"), scope(x_tenant="blue", x_route="blue"))
    call(asking("somebody"), scope(x_class="batch"))
    call(asking(None))
    user = {"http": 2, "tenant": expected(b"tenant", b"somebody"), "class": 0, "route": 0}
    assert written("labels") == [
        {"http": 1, "tenant": expected(b"tenant", b"blue"), "class": 0, "route": expected(b"route", b"blue")},
        {"http": 2, "tenant": 0, "class": expected(b"class", b"batch"), "route": 0},
        user,
    ]
    assert expected(b"tenant", b"blue") != expected(b"route", b"blue")
    hello = everything()[0]["fields"]["capabilities"]
    assert hello["tenant"] and hello["class"] and hello["route"]
    with open(frontend.recorder().ring.path, "rb") as file:
        data = file.read()
    assert not any(word in data for word in (b"somebody", b"blue", b"batch"))


def test_without_a_key_nobody_is_named(monkeypatch):
    monkeypatch.delenv("WHYLATE_KEY_FILE", raising=False)
    monkeypatch.setenv("WHYLATE_TENANT_HEADER", "x-tenant")
    call(asking("somebody"), scope(x_tenant="blue"))
    assert not written("labels") and not written("notice")
    capabilities = everything()[0]["fields"]["capabilities"]
    assert not (capabilities["tenant"] or capabilities["class"] or capabilities["route"])


@pytest.mark.parametrize("content", ["0f" * 31, "no key", None])
def test_a_key_that_is_none_is_told(key, content):
    key.unlink() if content is None else key.write_text(content)
    call(asking("somebody"))
    (notice,) = written("notice")
    assert notice["code"] == 4 and str(key) in notice["text"] and not written("labels")


def test_a_header_that_no_one_named_is_no_class(key):
    call(asking("somebody"), scope(x_class="batch"))
    assert written("labels") == [{"http": 1, "tenant": expected(b"tenant", b"somebody"), "class": 0, "route": 0}]
