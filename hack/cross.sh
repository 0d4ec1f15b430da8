#!/usr/bin/env bash
# Builds everynode for an architecture, with images of that architecture in it.
# Usage: LDFLAGS=... hack/cross.sh ARCH FILE
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOOS=linux GOARCH=$1 GOFLAGS="${GOFLAGS:-} -trimpath"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The images' programs are taken in place of those that are there for this machine.
embedded=$PWD/internal/images/embedded
for name in pause demo; do
  go build -ldflags '-s -w' -o "$work/$name" "./cmd/$name"
done
cat >"$work/overlay.json" <<END
{"Replace": {"$embedded/pause": "$work/pause", "$embedded/demo": "$work/demo"}}
END
mkdir -p "$(dirname "$2")"
go build -overlay "$work/overlay.json" -ldflags "$LDFLAGS" -o "$2" ./cmd/everynode
