#!/usr/bin/env bash
# Runs every fuzz test for FUZZTIME, one after another, and prints a table. What is
# found is written to testdata/fuzz beside the test, and fails it from then on.
#
#   FUZZTIME=10m      how long each test runs
#   FUZZ=Requests     only the tests whose package or name this expression fits
#   FUZZPARALLEL=2    how many workers each has
set -uo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
time=${FUZZTIME:-10m} only=${FUZZ:-.} workers=${FUZZPARALLEL:-2}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0 table="target\ttime\texecutions\tnew inputs\tfound"
while IFS=: read -r file _ line; do
  package=./$(dirname "$file") name=${line#func }
  name=${name%%(*}
  [[ $package.$name =~ $only ]] || continue
  echo "== $package $name for $time"
  started=$SECONDS found=-
  nice go test "$package" -run '^$' -fuzz "^$name\$" -fuzztime "$time" -parallel "$workers" -fuzzminimizetime 20x -timeout 0 2>&1 |
    tee "$log" | sed -u -e '/^PASS/d' -e '/^ok /d' -e 's/^\(.\{2000\}\).*/\1/' || true
  if ! grep -aq '^ok ' "$log"; then
    failed=1 found=$(grep -aoE 'testdata/fuzz/[^ ]+' "$log" | head -n 1)
    found=${found:-"see above"}
  fi
  last=$(grep -aE '^fuzz: elapsed' "$log" | tail -n 1)
  executions=$(grep -aoE 'execs: [0-9]+' <<<"$last" | cut -d' ' -f2)
  inputs=$(grep -aoE 'new interesting: [0-9]+' <<<"$last" | cut -d' ' -f3)
  table+="\n${package#./} $name\t$((SECONDS - started)) s\t${executions:-0}\t${inputs:-0}\t$found"
done < <(grep -rn '^func Fuzz' --include='*_test.go' . | sed 's,^\./,,' | sort)

# The whole control plane is too large for the fuzzer: it is disturbed for as long.
if [[ ./test/hostile.TestControlPlane =~ $only ]]; then
  echo "== ./test/hostile TestControlPlane for $time"
  started=$SECONDS found=-
  nice go test ./test/hostile -run 'TestControlPlane$' -soak "$time" -random "$RANDOM" -timeout 0 -v >"$log" 2>&1 ||
    { failed=1 found="see above"; grep -av -e '--- PASS' -e '=== RUN' "$log"; }
  executions=$(grep -aoE 'soak: [0-9]+' "$log" | cut -d' ' -f2)
  table+="\ntest/hostile TestControlPlane\t$((SECONDS - started)) s\t${executions:-0}\t-\t$found"
fi
echo
echo -e "$table" | column -t -s $'\t'
exit "$failed"
