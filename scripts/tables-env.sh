#!/usr/bin/env bash
# Makes a small Python environment with DuckDB and Polars in the cache folder, once, and prints its interpreter.
#
#   WHYLATE_DUCKDB_PYTHON=$(scripts/tables-env.sh) go test ./store/embedded -run DuckDB
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/whylate
tools="$cache/tables"
if [[ ! -f "$tools/.complete" ]]; then
  python=$(command -v python3) || { echo "tables-env: python3 is not on the PATH; install Python 3.10 or newer" >&2; exit 1; }
  rm -rf "$tools"
  "$python" -m venv "$tools" >&2 # Debian: apt-get install python3-venv
  "$tools/bin/python" -m pip --disable-pip-version-check --quiet install 'duckdb>=1.1,<3' 'polars>=1.0,<2' >&2
  touch "$tools/.complete"
fi
echo "$tools/bin/python"
