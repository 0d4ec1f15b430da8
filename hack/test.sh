#!/usr/bin/env bash
# Runs every test. Called by `make test`, which has built bin/everynode before.
set -euo pipefail
cd "$(dirname "$0")/.."

# The same settings as the build, so that nothing is compiled twice.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath" EVERYNODE_BINARY="$PWD/bin/everynode"
packages=$(go list ./... | grep -v '/test/stories')

echo "== unit and component tests"
# shellcheck disable=SC2086 # One word per package.
go test -timeout 20m $packages

echo "== stories on real containers"
go test -timeout 20m ./test/stories

# The race detector needs a C compiler, which the rest of Everynode does not.
if command -v gcc >/dev/null; then
  echo "== concurrent code under the race detector"
  CGO_ENABLED=1 go test -race -short -timeout 20m \
    ./internal/controller/... ./internal/scheduler/... ./internal/simulator/... ./internal/apiserver/resource/... ./internal/agent/...
else
  echo "== no C compiler: the race detector is not run (apt-get install gcc)"
fi
