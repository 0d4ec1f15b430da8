#!/usr/bin/env bash
# Runs the tests of `make test`, or with "all" those of `make test-all`; make has built bin/everynode before. Each test
# runs once: code with goroutines under the race detector, all else without. What failed stands at the end;
# bin/test-*.log have everything.
set -euo pipefail
cd "$(dirname "$0")/.."
all=${1:-}

# The same settings as the build, so that nothing is compiled twice.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath" EVERYNODE_BINARY="$PWD/bin/everynode"

results=$(mktemp -d)
stories=
trap '[ -z "$stories" ] || kill "$stories" 2>/dev/null || true; rm -rf "$results"' EXIT
go build -o "$results/report" ./test/report
failed=0
report() { # NAME: shows a line per package, and keeps what failed
  "$results/report" -failures "$results/$1.failures" -log "bin/test-$1.log" || failed=1
}

# Control loops, the scheduler, the simulator, the agent, and control planes that run all loops.
concurrent='^./(internal/(controller|scheduler|simulator|agent)[/ ]|internal/apiserver/resource |test/loops )'
# What takes long and seldom breaks alone. CONTRIBUTING.md says what only these prove.
nightly='^./test/(browser|chaos|conformance|helm|hostile|scale|upgrade)[/ ]'
# One story for each thing that a DaemonSet is for.
core='^TestOnContainers$/^(01-chosen-nodes|02-log-collector|03-taints|04-nodes-come-and-go|09-rolling-update|09-surge'
core+='|10-deleting|13-service|14-talking-service|17-control-plane-dies|restarts|volumes)$'

hack/lint.sh || { failed=1; echo "--- FAIL: style" >"$results/lint.failures"; }

# Stories mostly wait for containers, so they run beside the other tests.
if [ "$all" = all ]; then
  hack/helm.sh v4 # Charts are installed with the real Helm.
  nightly='^$'
  go test -json -timeout 30m ./test/stories >"$results/stories.json" 2>&1 &
else
  go test -json -timeout 15m -run "$core" ./test/stories >"$results/stories.json" 2>&1 &
fi
stories=$!

# Random tests draw the same cases each time, so that a change is not held up by what another has overlooked;
# make test-all draws others each time. The output says how to play a case that fails again.
seed=1
[ "$all" != all ] || seed=0 # at random

packages=$(hack/test-packages.sh | awk '{ sub("^github.com/everynode/everynode/", "./", $2); print $2, $3 }')
# PATTERN of packages, those to leave out, and arguments of go test.
run() {
  local chosen fixed random result=0
  chosen=$(grep -E "$1" <<<"$packages" | grep -Ev "$2|^./test/stories " || true)
  mapfile -t fixed < <(awk '$2 == "" { print $1 }' <<<"$chosen")
  mapfile -t random < <(awk '$2 == "random" { print $1 }' <<<"$chosen")
  go test -json "${@:3}" "${fixed[@]}" || result=$?
  go test -json "${@:3}" "${random[@]}" -rapid.seed=$seed || result=$?
  return $result
}

# The race detector needs a C compiler, which the rest of Everynode does not.
if command -v gcc >/dev/null; then
  echo "== concurrent code under the race detector"
  CGO_ENABLED=1 run "$concurrent" '^$' -race -timeout 20m 2>&1 | report race || failed=1
else
  echo "== no C compiler: concurrent code runs without the race detector (apt-get install gcc)"
  run "$concurrent" '^$' -timeout 20m 2>&1 | report concurrent || failed=1
fi

echo "== all other code"
run . "$concurrent|$nightly" -timeout 20m 2>&1 | report unit || failed=1

echo "== what measures, without the race detector"
short=-short # what is allocated only: times differ from machine to machine
[ "$all" = all ] && short=
go test -json $short -run '^TestCostOfAnObject$' ./internal/apiserver/resource 2>&1 | report cost || failed=1
if [ "$all" = all ]; then
  go test -json -run '^TestTenDaysAlone$' ./internal/agent/hollow -days 10 2>&1 | report alone || failed=1
  go test -json -run '^TestWatchesOfEveryKindEndWithoutMajority$' ./internal/server -cut 45s 2>&1 | report cut || failed=1
fi

echo "== stories on real containers"
wait "$stories" || failed=1
stories=
report stories <"$results/stories.json"

if [ "$failed" = 0 ]; then
  echo "== every test passed"
else
  echo "== what failed (all output is in bin/test-*.log)"
  cat "$results"/*.failures
fi
exit "$failed"
