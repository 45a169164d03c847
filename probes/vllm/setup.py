"""The rest of the build: the native helper, which may fail to be built. `WHYLATE_NATIVE=off` does not try."""

import os

from setuptools import Extension, setup

helper = Extension(
    "whylate_vllm._native",
    ["src/whylate_vllm/_native.c"],
    define_macros=[("Py_LIMITED_API", "0x030A0000")],
    extra_compile_args=["-std=gnu11", "-O2", "-g0", "-Wall", "-fno-plt", "-falign-functions=16"],
    extra_link_args=["-Wl,-z,now"],
    py_limited_api=True,
    optional=True,
)
setup(
    ext_modules=[helper] if os.environ.get("WHYLATE_NATIVE", "").lower() not in ("off", "0", "false", "no") else [],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
