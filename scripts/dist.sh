#!/usr/bin/env bash
# Makes the archives of a release: static binaries with licences, units and an example of whylate.yaml; and whylate-gpu, which is dynamic: it loads
# the driver's library.
#
#   scripts/dist.sh VERSION [DIRECTORY]        DIRECTORY is dist
#
#   whylate-VERSION-linux-amd64.tar.gz         server, agent and command line
#   whylate-agent-VERSION-linux-amd64.tar.gz   the agent alone
#   whylate-agent-VERSION-linux-arm64.tar.gz
#   SHA256SUMS
#
# The same commit, Go version and VERSION make the same bytes, wherever the repository lies. Times in the archives are that of
# the commit, or $SOURCE_DATE_EPOCH.
# Exit status: 0 all made · 2 wrong usage, or a tool is missing · 3 a command is not in the repository, the others were made.
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022
cd "$(dirname "$0")/.."

usage() { echo "dist: $*" >&2; exit 2; }

version=${1:-}
version=${version#v}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || usage "VERSION is '$version'; give one such as 0.2.0 or 0.2.0-rc.1: make dist VERSION=0.2.0"
out=${2:-dist}
for tool in go tar gzip sha256sum; do command -v "$tool" >/dev/null || usage "$tool is not on the PATH"; done
tar --version 2>/dev/null | grep -q 'GNU tar' || usage "tar is not GNU tar, which is needed for archives that can be compared"

epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)} # outside a repository: 1980-01-01
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What could make two builds differ, or need a C compiler, is set here and not taken from the environment.
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT= GOWORK=off
ldflags="-s -w -X github.com/whylate/whylate/cli.Version=$version -X main.Version=$version"
host=$(go env GOHOSTOS)/$(go env GOHOSTARCH)
GOOS= GOARCH= go build -o "$work/licences" ./internal/licences

archive() { # COMMAND OS ARCH FILE…: an archive of cmd/COMMAND; files are SOURCE:NAME
  local command=$1 os=$2 arch=$3
  shift 3
  local name=$command-$version-$os-$arch
  local dir=$work/$name
  mkdir -p "$dir/docs" "$dir/systemd"
  GOOS=$os GOARCH=$arch go build -trimpath -ldflags "$ldflags" -o "$dir/$command" "./cmd/$command"
  GOOS=$os GOARCH=$arch go build -trimpath -ldflags "$ldflags" -o "$dir/whylate-gpu" ./cmd/whylate-gpu
  if [[ $os/$arch == "$host" ]]; then
    { "$dir/$command" version || "$dir/$command" --version; } 2>/dev/null | grep -qF "$version" || { echo "dist: $command does not say that it is version $version" >&2; exit 1; }
  fi
  GOOS=$os GOARCH=$arch "$work/licences" -licences "$dir/THIRD_PARTY_LICENSES.txt" -notice "$dir/NOTICE" "./cmd/$command" ./cmd/whylate-gpu
  install -m 644 LICENSE README.md "$dir/"
  install -m 644 docs/config.md docs/operations.md "$dir/docs/"
  install -m 644 deploy/whylate.example.yaml "$dir/"
  install -m 644 "deploy/systemd/$command.service" deploy/systemd/whylate.sysusers.conf "$dir/systemd/"
  chmod 755 "$dir/$command" "$dir/whylate-gpu"
  chmod 644 "$dir/THIRD_PARTY_LICENSES.txt" "$dir/NOTICE"
  tar --sort=name --format=gnu --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -C "$work" -cf - "$name" | gzip -9n >"$work/$name.tar.gz"
  echo "dist: $name.tar.gz, $(($(wc -c <"$work/$name.tar.gz") / 1024)) KiB"
}

missing=()
while read -r command os arch; do
  if [[ ! -f cmd/$command/main.go ]]; then
    echo "dist: cmd/$command does not exist yet: no archive $command-$version-$os-$arch" >&2
    missing+=("$command-$os-$arch")
    continue
  fi
  archive "$command" "$os" "$arch"
done <<'LIST'
whylate linux amd64
whylate-agent linux amd64
whylate-agent linux arm64
LIST

mkdir -p "$out"
rm -f "$out"/whylate*-"$version"-*.tar.gz "$out/SHA256SUMS"
mv "$work"/*.tar.gz "$out/"
(cd "$out" && sha256sum ./*"-$version-"*.tar.gz | sed 's# \./# #' >SHA256SUMS)
cat "$out/SHA256SUMS"
if ((${#missing[@]})); then
  echo "dist: ${#missing[@]} of 3 archives were not made: ${missing[*]}" >&2
  exit 3
fi
