#!/usr/bin/env bash
# Runs the Python probe's tests: on plain Python with stubs, and, where scripts/engine-env.sh has made an engine, on the real
# engine's scheduler classes too. The former with the native helper, where it can be built, and with Python alone; the latter, which take
# three minutes, with the helper if there is one.
#
#   scripts/probe-tests.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(scripts/probe-tools.sh)

modes="off"
if scripts/probe-native.sh; then modes="on off"; fi
both() { # a command, with the native helper and without
  for mode in $modes; do
    echo "native helper $mode:"
    WHYLATE_NATIVE=$mode "$@"
  done
}

cd probes/vllm
rm -rf src/*.egg-info # of an installation from this tree: with it the sources alone would count as installed
both "$tools" -m pytest -q -p no:cacheprovider "$@"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/whylate
engine=${WHYLATE_ENGINE_DIR:-$cache/engine}/vllm-0.32.0
if [[ -f "$engine/.complete" ]]; then
  echo "on the scheduler of vLLM 0.32.0:"
  site=$("$tools" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  export PYTHONPATH="src:$site"
  WHYLATE_NATIVE=${modes%% *} "$engine/bin/python" -m pytest -q -p no:cacheprovider tests/test_real_scheduler.py tests/test_harmless_real.py "$@"
else
  echo "probe-tests: no engine at $engine; the tests on its scheduler were skipped ('make engine-env' makes one)" >&2
fi
