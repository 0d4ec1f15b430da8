#!/usr/bin/env bash
# Runs every test. Called by `make test`, which has built bin/everynode before.
set -euo pipefail
cd "$(dirname "$0")/.."

# The same settings as the build, so that nothing is compiled twice.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath" EVERYNODE_BINARY="$PWD/bin/everynode"

# Stories mostly wait for containers, so they run beside the other tests.
echo "== stories on real containers start in the background"
stories=$(mktemp)
go test -timeout 30m ./test/stories >"$stories" 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null || true; rm -f "$stories"' EXIT

failed=0
echo "== unit and component tests"
# shellcheck disable=SC2046 # One word per package.
go test -timeout 20m $(go list ./... | grep -v '/test/stories') || failed=1

# The race detector needs a C compiler, which the rest of Everynode does not.
if command -v gcc >/dev/null; then
  echo "== concurrent code under the race detector"
  CGO_ENABLED=1 go test -race -short -timeout 20m \
    ./internal/controller/... ./internal/scheduler/... ./internal/simulator/... ./internal/apiserver/resource/... ./internal/agent/... || failed=1
else
  echo "== no C compiler: the race detector is not run (apt-get install gcc)"
fi

wait "$pid" || failed=1
echo "== stories on real containers"
cat "$stories"
exit "$failed"
