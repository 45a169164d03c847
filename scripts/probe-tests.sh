#!/usr/bin/env bash
# Runs the Python probe's tests: on plain Python with stubs, and, where scripts/engine-env.sh has made an engine, on the real
# engine's scheduler classes too.
#
#   scripts/probe-tests.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/whylate
python=$(command -v python3) || { echo "probe-tests: python3 is not on the PATH; install Python 3.10 or newer" >&2; exit 1; }
tools="$cache/probe-tests"
if [[ ! -f "$tools/.complete" ]]; then
  rm -rf "$tools"
  "$python" -m venv "$tools" # Debian: apt-get install python3-venv
  "$tools/bin/python" -m pip --disable-pip-version-check --quiet install 'pytest>=8,<10'
  touch "$tools/.complete"
fi

cd probes/vllm
"$tools/bin/python" -m pytest -q -p no:cacheprovider "$@"

engine=${WHYLATE_ENGINE_DIR:-$cache/engine}/vllm-0.32.0
if [[ -f "$engine/.complete" ]]; then
  echo "on the scheduler of vLLM 0.32.0:"
  site=$("$tools/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  PYTHONPATH="src:$site" "$engine/bin/python" -m pytest -q -p no:cacheprovider tests/test_real_scheduler.py "$@"
else
  echo "probe-tests: no engine at $engine; the tests on its scheduler were skipped ('make engine-env' makes one)" >&2
fi
