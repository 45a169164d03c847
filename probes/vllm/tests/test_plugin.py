import os
import subprocess
import sys
from pathlib import Path

import whylate_vllm
from whylate_vllm import hooks, identity

SOURCE = str(Path(__file__).parents[1] / "src")


def python(code, **environment):
    """A process of its own: what `register()` does to one is done for good."""
    env = {**os.environ, "PYTHONPATH": SOURCE, **environment}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def block_pool(folder, text):
    """A vLLM of one module."""
    package = folder / "vllm/v1/core"
    package.mkdir(parents=True)
    for part in package, package.parent, package.parent.parent:
        (part / "__init__.py").touch()
    (package / "block_pool.py").write_text(text)


def test_off_is_off():
    count = "print(len(sys.meta_path), [name for name in os.environ if 'INCARNATION' in name])"
    without = python(f"import whylate_vllm, sys, os; {count}")
    assert python(f"import whylate_vllm, sys, os; whylate_vllm.register(); {count}", WHYLATE_PROBE="off") == without


def test_children_inherit_the_incarnation():
    code = "import whylate_vllm, os; whylate_vllm.register(); print(os.environ['WHYLATE_INCARNATION'])"
    assert len(python(code)) == 16 and python(code) != python(code)
    assert python(code, WHYLATE_INCARNATION="given") == "given"


def test_a_module_is_hooked_when_it_is_imported(tmp_path):
    block_pool(tmp_path, "class BlockPool:\n    def cache_full_blocks(self): return 7\n")
    code = (
        "import whylate_vllm; whylate_vllm.register(); whylate_vllm.register()\n"
        "from whylate_vllm import hooks; assert not hooks.installed\n"
        "from vllm.v1.core.block_pool import BlockPool\n"
        "assert BlockPool().cache_full_blocks() == 7\n"
        "print(sorted(hooks.installed), sum(type(f).__name__ == 'WhenImported' for f in __import__('sys').meta_path))"
    )
    assert python(code, PYTHONPATH=f"{SOURCE}:{tmp_path}") == "['BlockPool.cache_full_blocks'] 1"


def test_a_server_that_is_run_as_a_program():
    code = (
        "def build_app(args): pass\n"
        "import whylate_vllm; whylate_vllm.register()\n"
        "from whylate_vllm import hooks; print(sorted(hooks.installed), hooks.missing, build_app.whylate.name)"
    )
    assert python(code) == "['__main__.build_app'] [] __main__.build_app"
    assert python(code.replace("build_app", "another").replace("another.whylate.name", "''")) == "[] []"


def test_a_module_that_is_there_already_is_hooked_at_once(tmp_path):
    block_pool(tmp_path, "class BlockPool:\n    def cache_full_blocks(self): return 7\n")
    code = (
        "import vllm.v1.core.block_pool, whylate_vllm; whylate_vllm.register()\n"
        "from whylate_vllm import hooks; print(sorted(hooks.installed))"
    )
    assert python(code, PYTHONPATH=f"{SOURCE}:{tmp_path}") == "['BlockPool.cache_full_blocks']"


def test_a_module_that_cannot_be_hooked_is_imported_all_the_same(tmp_path):
    block_pool(tmp_path, "here = True\n")
    code = "import whylate_vllm; whylate_vllm.register(); import vllm.v1.core.block_pool as m; print(m.here)"
    assert python(code, PYTHONPATH=f"{SOURCE}:{tmp_path}") == "True"


def test_an_import_that_fails_fails_as_before(tmp_path):
    block_pool(tmp_path, "raise ImportError('its own')\n")
    code = (
        "import whylate_vllm; whylate_vllm.register()\n"
        "try: import vllm.v1.core.block_pool\n"
        "except ImportError as error: print(error)"
    )
    assert python(code, PYTHONPATH=f"{SOURCE}:{tmp_path}") == "its own"


def test_register_never_raises(monkeypatch, caplog):
    def broken():
        raise RuntimeError("no")

    monkeypatch.setattr(whylate_vllm, "_registered", False)
    monkeypatch.setattr(identity, "incarnate", broken)
    whylate_vllm.register()
    assert "whylate is not installed in this process: no" in caplog.text


def test_who_writes(monkeypatch):
    monkeypatch.setenv("WHYLATE_DEPLOYMENT", "chat")
    monkeypatch.setenv("WHYLATE_REPLICA", "r7")
    engine = identity.hello(2, role="engine")["engine"]
    assert (engine["name"], engine["deployment"], engine["replica"], engine["rank"]) == ("vllm", "chat", "r7", 2)


def test_arguments_by_place_or_name():
    assert hooks.argument((1, 2), {}, 1, "x") == 2
    assert hooks.argument((1,), {"x": 5}, 1, "x") == 5
    assert hooks.argument((), {}, 0, "x") is None
