#!/usr/bin/env bash
# Makes the Python environment that tests and builds the probe (pytest, setuptools), and prints the path of its Python. It lies in the
# user's cache folder; a finished one is reused, without a network.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/whylate
python=$(command -v python3) || { echo "probe-tools: python3 is not on the PATH; install Python 3.10 or newer" >&2; exit 1; }
tools="$cache/probe-tools"
mkdir -p "$cache"
exec 9>"$cache/.probe-tools.lock"
flock 9 # two callers must not build the same environment at once
if [[ ! -f "$tools/.complete" ]]; then
  rm -rf "$tools"
  "$python" -m venv "$tools" >&2 # Debian: apt-get install python3-venv
  # setuptools makes wheels by itself since 70.1.
  "$tools/bin/python" -m pip --disable-pip-version-check --quiet install 'pytest>=8,<10' 'setuptools>=70.1,<90' >&2
  touch "$tools/.complete"
fi
echo "$tools/bin/python"
