"""Plants faults into the probe of a real engine, before anything of vLLM is imported: WHYLATE_TEST_FAULT says which. It is put on
PYTHONPATH by `make engine-test` alone, and is no part of the probe."""

import os

RENAMED = "EngineCore.preprocess_add_request", "OutputProcessor.process_outputs", "Scheduler._free_request", "Worker.execute_model"


def raising(point: str):
    def planted(*args):
        raise RuntimeError(f"planted in {point}")

    return planted


def plant(fault: str) -> None:
    from whylate_vllm import engine, frontend, hooks, worker

    real = hooks.around

    def around(owner, name, before=hooks.now, after=hooks.nothing):
        point = f"{owner.__name__}.{name}"
        if fault == "renamed":
            name += "_before" if point in RENAMED else ""
        elif after is hooks.nothing:
            before = raising(point)
        else:
            after = raising(point)
        real(owner, name, before, after)

    for module in hooks, engine, frontend, worker:
        module.around = around
    if fault == "raise":
        frontend.answered = raising("RequestState.make_request_output")
        frontend.Exchange.__init__ = raising("ASGI")


if os.environ.get("WHYLATE_TEST_FAULT"):
    plant(os.environ["WHYLATE_TEST_FAULT"])
