"""The API server: when a request came, what was handed to the engine, and how the bytes went back."""

import functools
import threading
from asyncio import CancelledError
from contextvars import ContextVar
from time import monotonic_ns

from . import hooks, wire
from .hooks import Guard, argument, around
from .labels import Labels
from .ring import Ring

RING = 15 << 20
COMPLETE, DISCONNECTED, FAILED = 0, 1, 2
TOKEN, STOP_STRING, CLIENT = 1, 2, 3
UNKNOWN, ABORT, ERROR = 0, 3, 4
AT_MOST = 4096

exchange: ContextVar["Exchange | None"] = ContextVar("whylate_exchange", default=None)


class Recorder:
    """One thread's ring, and the sequences that it has handed to the engine."""

    def __init__(self):
        self.http = self.submissions = 0
        self.handles: dict[str, int] = {}  # of sequences without an end
        self.delivered: list[int] | None = None
        self.aborting = False
        self.labels = Labels()
        self.ring = Ring("frontend", "loop", RING, abandoned=forget, capabilities=capabilities() | self.labels.capabilities())
        if self.labels.why:
            self.ring.notice(4, self.labels.why)
        for name in hooks.missing:
            self.ring.notice(2, name)

    def answer(self, id: str, reason: int, by: int, output: int) -> None:
        """Only the first end counts: after a stop string the engine still reports an abort."""
        if handle := self.handles.pop(id, 0):
            self.ring.write(wire.ANSWERED, 0, monotonic_ns(), wire.answered(handle, reason, by, output))


def capabilities() -> dict[str, bool]:
    return {
        "received": any(name.endswith(".build_app") for name in hooks.installed),
        "submitted": "OutputProcessor.add_request" in hooks.installed,
        "answered": "RequestState.make_request_output" in hooks.installed,
        "delivered": "OutputProcessor.process_outputs" in hooks.installed,
    }


_local = threading.local()


def forget() -> None:
    global _local
    _local = threading.local()


def recorder() -> Recorder:
    found = getattr(_local, "recorder", None)
    if found is None:
        found = _local.recorder = Recorder()
    return found


# The HTTP side.


class Exchange:
    """One HTTP request, watched from outside the application."""

    def __init__(self, scope):
        entered = monotonic_ns()
        self.recorder = found = recorder()
        found.http = self.number = found.http + 1
        self.status = self.chunks = self.size = self.wait = self.disconnect = 0
        self.over = False
        headers = dict(scope["headers"])
        found.ring.write(wire.RECEIVED, 0, entered, wire.received(
            self.number,
            headers.get(b"x-request-id", b"").decode("utf-8", "replace"),
            headers.get(b"traceparent", b"").decode("utf-8", "replace"),
            scope["path"],
        ))  # fmt: skip
        self.tenant, *others = found.labels.of(headers)
        if self.tenant or any(others):
            found.ring.write(wire.LABELS, 0, entered, wire.labels(self.number, self.tenant, *others))

    def parsed(self, request) -> None:
        """The request names its user; a header that says the tenant goes before it."""
        user, found = getattr(request, "user", None), self.recorder
        if user and not self.tenant and found.labels.key:
            self.tenant = found.labels.hash("tenant", user.encode("utf-8", "replace"))
            found.ring.write(wire.LABELS, 0, monotonic_ns(), wire.labels(self.number, self.tenant, 0, 0))

    def sent(self, message, began: int, ended: int) -> None:
        if self.over:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"] & wire.U16
        elif message["type"] == "http.response.body":
            self.wait += ended - began
            if body := message.get("body"):
                if not self.chunks:
                    self.recorder.ring.write(wire.FIRST_BYTE, 0, began, wire.first_byte(self.number, self.status))
                self.chunks += 1
                self.size += len(body)
            if not message.get("more_body"):
                self.end(COMPLETE, ended)

    def end(self, end: int, time: int) -> None:
        if self.over:
            return
        self.over = True
        self.recorder.ring.write(wire.LAST_BYTE, 0, time, wire.last_byte(
            self.number,
            self.status,
            DISCONNECTED if self.disconnect else end,
            self.chunks,
            self.size,
            self.wait,
            self.disconnect,
        ))  # fmt: skip


class Watch:
    """ASGI middleware. It passes every message on as it is, and its own errors end only itself."""

    guard = Guard("ASGI")

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        watched = None
        if self.guard.on and scope["type"] == "http" and scope["method"] == "POST":
            try:
                watched = Exchange(scope)
                exchange.set(watched)
            except Exception as error:
                self.guard.blow(error)
        if watched is None:
            return await self.app(scope, receive, send)

        async def receiving():
            message = await receive()
            if message["type"] == "http.disconnect" and not watched.over and not watched.disconnect:
                watched.disconnect = monotonic_ns()
            return message

        async def sending(message):
            began = monotonic_ns()
            await send(message)
            self.tell(watched.sent, message, began, monotonic_ns())

        end = FAILED
        try:
            await self.app(scope, receiving, sending)
            end = COMPLETE
        except CancelledError:
            end = DISCONNECTED
            raise
        finally:
            exchange.set(None)
            self.tell(watched.end, end, monotonic_ns())

    def tell(self, what, *facts) -> None:
        if self.guard.on:
            try:
                what(*facts)
            except Exception as error:
                self.guard.blow(error)


def watch(app) -> None:
    """Outermost, whether the middleware stack is still to be built or, as vLLM's SageMaker part does, was built already."""
    build = app.build_middleware_stack
    if hasattr(build, "whylate"):
        return  # a plugin beside this one stands between the two places of `build_app`
    app.build_middleware_stack = lambda: Watch(build())
    app.build_middleware_stack.whylate = True
    if app.middleware_stack is not None:
        app.middleware_stack = Watch(app.middleware_stack)


def hook_build_app(module) -> None:
    original = getattr(module, "build_app", None)
    guard = hooks.claim(module, "build_app", original)
    if guard is None:
        return

    @functools.wraps(original)
    def build_app(*args, **kwargs):
        app = original(*args, **kwargs)
        if guard.on:
            try:
                watch(app)
            except Exception as error:
                guard.blow(error)
        return app

    hooks.replace(module, "build_app", build_app, guard)


def check_model(serving, args, kwargs):
    """The first that all of vLLM's endpoints do with a request that has been parsed."""
    if (current := exchange.get()) and not current.over and current.recorder is recorder():
        current.parsed(argument(args, kwargs, 0, "request"))


def hook_serving(module) -> None:
    classes = [value for value in vars(module).values() if isinstance(value, type) and "_check_model" in vars(value)]
    for cls in classes:
        around(cls, "_check_model", before=check_model)
    if not classes:
        hooks.lacks(f"{module.__name__}: no class with _check_model")


# The engine's side of it.


def add_request(processor, entered, result, args, kwargs):
    request, found, current = argument(args, kwargs, 0, "request"), recorder(), exchange.get()
    if request.request_id in found.handles:
        return  # a further chunk of a streaming session
    if len(found.handles) > len(processor.request_states) + AT_MOST:  # their ends were not seen
        found.handles = {id: handle for id, handle in found.handles.items() if id in processor.request_states}
    found.submissions = handle = found.submissions + 1
    found.handles[request.request_id] = handle
    parent = argument(args, kwargs, 2, "parent_req")
    prompt = request.prompt_token_ids if request.prompt_token_ids is not None else request.prompt_embeds
    found.ring.write(wire.SUBMITTED, 0, entered, wire.submitted(
        current.number if current and current.recorder is found else 0,
        handle,
        argument(args, kwargs, 3, "request_index") or 0,
        len(prompt) if prompt is not None else 0,
        request.request_id,
        request.external_req_id or "",
        parent.request_id if parent else "",
    ))  # fmt: skip


def before_outputs(processor, args, kwargs):
    known = recorder().handles.get
    outputs = argument(args, kwargs, 0, "engine_core_outputs")
    return monotonic_ns(), [handle for output in outputs if (handle := known(output.request_id))]


def process_outputs(processor, state, result, args, kwargs):
    (entered, handles), found, returned = state, recorder(), monotonic_ns()
    key = argument(args, kwargs, 1, "engine_core_timestamp") or 0.0
    same = handles == found.delivered
    found.delivered = handles
    body = wire.delivered(key, returned, 0, () if same else handles)
    found.ring.write(wire.DELIVERED, wire.SAME if same else 0, entered, body)


def before_abort(processor, args, kwargs):
    found = recorder()
    outer, found.aborting = found.aborting, True
    return outer


def abort_requests(processor, outer, aborted, args, kwargs):
    found = recorder()
    found.aborting = outer
    for id in aborted:
        found.answer(id, ABORT, CLIENT, 0)


def finish_request(processor, entered, result, args, kwargs):
    """Mostly answered by now; a streaming session may end without a last output."""
    recorder().answer(argument(args, kwargs, 0, "req_state").request_id, UNKNOWN, 0, 0)


def propagate_error(processor, entered, result, args, kwargs):
    for id in processor.request_states:
        recorder().answer(id, ERROR, 0, 0)


def answered(state, finish_reason, stop_reason) -> None:
    if state.streaming_input:
        return  # the session goes on
    found = recorder()
    client = found.aborting and finish_reason == ABORT - 1
    by = CLIENT if client else STOP_STRING if isinstance(stop_reason, str) else 0 if stop_reason is None else TOKEN
    output = state.detokenizer.num_output_tokens() if state.detokenizer else 0
    found.answer(state.request_id, int(finish_reason) + 1, by, output)


def hook_make_request_output(cls) -> None:
    """Called for every token of every stream: only the last one may cost anything."""
    original = getattr(cls, "make_request_output", None)
    guard = hooks.claim(cls, "make_request_output", original)
    if guard is None:
        return

    @functools.wraps(original)
    def make_request_output(self, *args, **kwargs):
        if guard.on and (finish_reason := argument(args, kwargs, 2, "finish_reason")) is not None:
            try:
                answered(self, finish_reason, argument(args, kwargs, 3, "stop_reason"))
            except Exception as error:
                guard.blow(error)
        return original(self, *args, **kwargs)

    hooks.replace(cls, "make_request_output", make_request_output, guard)


def hook_output_processor(module) -> None:
    cls = module.OutputProcessor
    around(cls, "add_request", after=add_request)
    around(cls, "process_outputs", before=before_outputs, after=process_outputs)
    around(cls, "abort_requests", before=before_abort, after=abort_requests)
    around(cls, "_finish_request", after=finish_request)
    around(cls, "propagate_error", after=propagate_error)
    hook_make_request_output(module.RequestState)
