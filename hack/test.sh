#!/usr/bin/env bash
# Runs every test. Called by `make test`, which has built bin/everynode before.
# What failed stands at the end; bin/test-*.log have everything.
set -euo pipefail
cd "$(dirname "$0")/.."

# The same settings as the build, so that nothing is compiled twice.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath" EVERYNODE_BINARY="$PWD/bin/everynode"

results=$(mktemp -d)
stories=
trap '[ -z "$stories" ] || kill "$stories" 2>/dev/null || true; rm -rf "$results"' EXIT
go build -o "$results/report" ./test/report
report() { # NAME: shows a line per package, and keeps what failed
  "$results/report" -failures "$results/$1.failures" -log "bin/test-$1.log"
}

# Charts are installed with the real Helm.
hack/helm.sh v4

# Stories mostly wait for containers, so they run beside the other tests.
echo "== stories on real containers start in the background"
go test -json -timeout 30m ./test/stories >"$results/stories.json" 2>&1 &
stories=$!

failed=0
echo "== unit and component tests"
# shellcheck disable=SC2046 # One word per package.
go test -json -timeout 20m $(go list ./... | grep -v '/test/stories') 2>&1 | report unit || failed=1

# The race detector needs a C compiler, which the rest of Everynode does not.
if command -v gcc >/dev/null; then
  echo "== concurrent code under the race detector"
  CGO_ENABLED=1 go test -json -race -short -timeout 20m \
    ./internal/controller/... ./internal/scheduler/... ./internal/simulator/... ./internal/apiserver/resource/... ./internal/agent/... 2>&1 |
    report race || failed=1
else
  echo "== no C compiler: the race detector is not run (apt-get install gcc)"
fi

echo "== stories on real containers"
wait "$stories" || failed=1
stories=
report stories <"$results/stories.json" || failed=1

if [ "$failed" = 0 ]; then
  echo "== every test passed"
else
  echo "== what failed (all output is in bin/test-*.log)"
  cat "$results"/*.failures
fi
exit "$failed"
