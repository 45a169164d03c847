#!/usr/bin/env bash
# Upgrades a server in place, and holds its answers against those from before.
#
#   scripts/upgrade-test.sh [OLD [NEW]]     commits; OLD is the newest tag, or the first commit that serves; NEW is HEAD
#
# Builds the archives of both commits (scripts/dist.sh of each), installs them, lets the old server take in the demo, seal it and answer; stops
# it; starts the new one on the same data directory and asks the same. A new field may appear; none may change or vanish. Then the new
# server seals something of its own, and the old one must either answer as before, or refuse the newer format by name and
# change nothing.
set -euo pipefail
export LC_ALL=C TZ=UTC
cd "$(dirname "$0")/.."

old=${1:-$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || echo f0e83cd)}
new=${2:-HEAD}
for tool in git go tar python3 curl sha256sum; do command -v "$tool" >/dev/null || { echo "upgrade-test: $tool is not on the PATH" >&2; exit 2; }; done
# What the tests are asked with: known to every commit that serves.
demo=$PWD/cli/demo.wlc
ids="fan-0 short-8 steady-1 waiter-9 grow-13 hangup-1 alone-2"

work=$(mktemp -d)
server=
trees=()
end() {
  if [[ -n $server ]]; then kill -9 "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  for t in "${trees[@]}"; do git worktree remove --force "$t" >/dev/null 2>&1 || true; done
  rm -rf "$work"
}
trap end EXIT
fail() { echo "upgrade-test: $*" >&2; exit 1; }

install_archive() { # NAME COMMIT: the archive of a commit, unpacked into $work/NAME
  local tree=$work/tree-$1 commit
  commit=$(git rev-parse --verify --quiet "$2^{commit}") || fail "$2 is no commit"
  git worktree add --quiet --detach "$tree" "$commit"
  trees+=("$tree")
  "$tree/scripts/dist.sh" "0.0.0-$1" "$work/dist-$1" >"$work/dist-$1.log" 2>&1 || { cat "$work/dist-$1.log" >&2; fail "the archives of $2 cannot be built"; }
  mkdir "$work/$1"
  (cd "$work/dist-$1" && sha256sum --quiet -c SHA256SUMS)
  tar -xzf "$work/dist-$1/whylate-0.0.0-$1-linux-amd64.tar.gz" -C "$work/$1" --strip-components 1
  echo "$1: $2 ($(git log -1 --format='%h %s' "$commit")), $("$work/$1/whylate" version | head -n 1)"
}

serve() { # NAME: starts the server of an archive on the data directory, and waits until it answers
  local log=$work/serve-$1.log
  : >"$work/none.yaml"
  WHYLATE_CONFIG=$work/none.yaml "$work/$1/whylate" serve --data-dir "$work/data" --listen-http 127.0.0.1:0 --listen-agents off --rings-follow=false \
    --store-seal-every 1s --store-hot-period 1s --store-retention-iterations forever --store-retention-requests forever 2>"$log" &
  server=$!
  local address=
  for _ in $(seq 600); do
    kill -0 "$server" 2>/dev/null || return 1
    address=$(sed -n 's/.*msg=answering address=\([^ ]*\).*/\1/p' "$log" | head -n 1)
    if [[ -n $address ]] && curl -fs "http://$address/readyz" >/dev/null; then
      url=http://$address
      return 0
    fi
    sleep 0.1
  done
  fail "the $1 server does not answer: $(tail -n 3 "$log")"
}

stop() {
  kill -TERM "$server"
  wait "$server" || fail "the server ended with $? after SIGTERM"
  server=
}

sealed() { # NAME COUNT: waits until a server has sealed so often
  for _ in $(seq 600); do
    if (($(grep -c 'msg=sealed' "$work/serve-$1.log" || true) >= $2)); then return 0; fi
    sleep 0.1
  done
  fail "the $1 server does not seal: $(tail -n 3 "$work/serve-$1.log")"
}

explain() { # NAME DIR: what the server answers about single requests, by the command line of an archive
  mkdir "$work/$2"
  for id in $ids; do "$work/$1/whylate" explain "$id" --server "$url" -o json >"$work/$2/explain-$id.json"; done
}

ask() { # NAME DIR: that, and lists, which change when something else comes in
  explain "$1" "$2"
  "$work/$1/whylate" requests --server "$url" -n 0 -o json >"$work/$2/requests.json"
  "$work/$1/whylate" requests --server "$url" --sort ttft -n 20 -o json >"$work/$2/slowest.json"
  "$work/$1/whylate" iterations --first 200 --last 210 --server "$url" -o json >"$work/$2/iterations.json"
  "$work/$1/whylate" iterations 205 --server "$url" -o json >"$work/$2/iteration.json"
}

compare() { # DIR DIR: everything of the first that was asked again is in the second
  python3 - "$work/$1" "$work/$2" <<'PYTHON'
import json, pathlib, sys
was, now = map(pathlib.Path, sys.argv[1:])
# What earlier versions told wrongly, and may change: of a sealed iteration all those as waiters who had joined before it.
mended = {"iteration.waiters"}
wrong, values = [], 0
def same(a, b, where):
    global values
    if isinstance(a, dict) and isinstance(b, dict):
        for k in a:
            if f"{where}.{k}" in mended: continue
            if k not in b: wrong.append(f"{where}.{k} is gone; it was {json.dumps(a[k])[:80]}")
            else: same(a[k], b[k], f"{where}.{k}")
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b): wrong.append(f"{where} has {len(b)} entries, and had {len(a)}")
        for i, (x, y) in enumerate(zip(a, b)): same(x, y, f"{where}[{i}]")
    else:
        values += 1
        if a != b: wrong.append(f"{where} is {json.dumps(b)[:80]}, and was {json.dumps(a)[:80]}")
files = [was / f.name for f in sorted(now.glob("*.json"))]
for f in files: same(json.loads(f.read_text()), json.loads((now / f.name).read_text()), f.stem)
for w in wrong[:20]: print("upgrade-test:", w, file=sys.stderr)
if wrong: sys.exit(f"upgrade-test: {len(wrong)} differences")
print(f"{len(files)} answers with {values} values are the same")
PYTHON
}

formats() { grep -ho '"format": *[0-9]*' "$work"/data/store/sealed/*/manifest.json | sort -u | tr -dc '0-9\n' | paste -sd' ' -; }

install_archive old "$old"
install_archive new "$new"

serve old || fail "the old server ends: $(tail -n 3 "$work/serve-old.log")"
"$work/old/whylate" import "$demo" --server "$url" >/dev/null
sealed old 1
ask old before
stop
"$work/old/whylate" store ls --data-dir "$work/data" >"$work/ls-before.txt"
before=$(formats)

serve new || fail "the new server does not open what the old one left: $(tail -n 3 "$work/serve-new.log")"
ask new after
compare before after
WHYLATE_WRITE_CAPTURE=$work/more.wlc go test ./internal/apptest -run '^TestWriteCapture$' -count 1 >/dev/null
"$work/new/whylate" import "$work/more.wlc" --server "$url" >/dev/null
sealed new 1
explain new later
echo "after the new server sealed something of its own: $(compare before later)"
stop
after=$(formats)
"$work/new/whylate" store verify --data-dir "$work/data" | tail -n 1
"$work/new/whylate" store ls --data-dir "$work/data" >"$work/ls-after.txt"
while read -r period _; do
  grep -q "^$period " "$work/ls-after.txt" || fail "period $period is gone"
done < <(sed 1d "$work/ls-before.txt" | grep -v '^log:')
echo "formats of the periods: before $before, now $after"

# Back again.
sums() { (cd "$work/data" && find . -type f ! -name LOCK -print0 | sort -z | xargs -0 sha256sum); }
sums >"$work/sums"
if serve old; then
  [[ $before == "$after" ]] || fail "the old server opens format $after, which it does not know"
  explain old back
  echo "the old server opens it as well: $(compare before back)"
  stop
else
  server=
  said=$(tail -n 1 "$work/serve-old.log")
  [[ $before != "$after" ]] || fail "the old server does not open its own format: $said"
  [[ $said == *format* && $said == *"${after##* }"* ]] || fail "the old server refuses a newer format without naming it: $said"
  sums | cmp -s - "$work/sums" || fail "the old server changed files that it refused"
  echo "the old server refuses, and changed nothing: ${said//"$work"\//}"
fi
echo "upgrade-test: $old to $new passed"
