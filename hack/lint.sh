#!/usr/bin/env bash
# Checks the format, and the style as far as that needs no types: `make lint` checks all of it, and takes longer.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "== style"
exec env CGO_ENABLED=0 go tool -modfile=tools/go.mod golangci-lint run --fast-only --allow-parallel-runners
