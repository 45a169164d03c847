#!/usr/bin/env bash
# Builds the probe's native helper among its sources, where the tests, the figures and an engine with PYTHONPATH=probes/vllm/src find
# it. One file does for every Python from 3.10 on. Without a C compiler or Python's headers it fails and says so, and all goes on in
# Python alone.
set -euo pipefail
cd "$(dirname "$0")/../probes/vllm"
python=$(../../scripts/probe-tools.sh)
helper=src/whylate_vllm/_native.abi3.so

mkdir -p build
exec 9>build/.native.lock
flock 9
[[ $helper -nt src/whylate_vllm/_native.c && $helper -nt setup.py ]] && exit
rm -f "$helper"
"$python" setup.py --quiet build_ext --inplace >build/native.log 2>&1 || true
if [[ ! -f $helper ]]; then
  tail -n 5 build/native.log >&2
  echo "probe-native: the native helper could not be built (gcc? Python's headers?); the probe is Python alone" >&2
  exit 1
fi
