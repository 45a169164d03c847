#!/usr/bin/env bash
# Builds the probe's wheel, without a network once scripts/probe-tools.sh has made its environment.
#
#   scripts/probe-wheel.sh [DIRECTORY]        DIRECTORY is dist
#
# The same commit makes the same bytes. Install it where vLLM is: pip install --no-index --no-deps whylate_vllm-*.whl
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-dist}
python=$(scripts/probe-tools.sh)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R probes/vllm "$work/probe" # setuptools leaves its own files beside the sources
rm -rf "$work/probe/build" "$work/probe"/src/*.egg-info
find "$work/probe" -name __pycache__ -prune -exec rm -rf {} +
cp LICENSE NOTICE "$work/probe/"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}
"$python" -m pip --disable-pip-version-check --quiet wheel --no-index --no-deps --no-build-isolation -w "$work" "$work/probe"
mkdir -p "$out"
rm -f "$out"/whylate_vllm-*.whl
mv "$work"/whylate_vllm-*.whl "$out/"
echo "$out"/whylate_vllm-*.whl
