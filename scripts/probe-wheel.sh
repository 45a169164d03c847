#!/usr/bin/env bash
# Builds the probe's wheels, without a network once scripts/probe-tools.sh has made its environment: one in Python alone, for
# everywhere, and one with the native helper for this platform, where a C compiler and Python's headers are.
#
#   scripts/probe-wheel.sh [DIRECTORY]        DIRECTORY is dist
#
# The same commit and compiler make the same bytes. Install one where vLLM is: pip install --no-index --no-deps WHEEL
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-dist}
python=$(scripts/probe-tools.sh)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}

wheel() { # $1: WHYLATE_NATIVE
  rm -rf "$work/probe"
  cp -R probes/vllm "$work/probe" # setuptools leaves its own files beside the sources
  rm -rf "$work/probe/build" "$work/probe"/src/*.egg-info "$work/probe"/src/*/*.so
  find "$work/probe" -name __pycache__ -prune -exec rm -rf {} +
  cp LICENSE NOTICE "$work/probe/"
  WHYLATE_NATIVE=$1 "$python" -m pip --disable-pip-version-check --quiet wheel --no-index --no-deps --no-build-isolation \
    -w "$work" "$work/probe" >&2
}

wheel off
wheel on
native=$(echo "$work"/whylate_vllm-*-cp310-abi3-*.whl)
if ! "$python" -m zipfile -l "$native" | grep -q '_native\.abi3\.so'; then
  rm "$native"
  echo "probe-wheel: no wheel with the native helper: it could not be built (gcc? Python's headers?)" >&2
fi
mkdir -p "$out"
rm -f "$out"/whylate_vllm-*.whl
mv "$work"/whylate_vllm-*.whl "$out/"
ls "$out"/whylate_vllm-*.whl
