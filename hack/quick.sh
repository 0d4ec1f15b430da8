#!/usr/bin/env bash
# Checks the format, and runs every test that needs neither a server nor root. Called by `make quick`.
set -euo pipefail
cd "$(dirname "$0")/.."

# The same settings as the build, so that nothing is compiled twice.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"

unformatted=$(git ls-files -z '*.go' | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
  echo "not formatted; run gofmt -w on:"
  echo "$unformatted"
  exit 1
fi
mkdir -p bin
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
go build -o "$results/report" ./test/report
hack/test-packages.sh | awk '$1 == "light" { print $2 }' | xargs go test -json -short -timeout 5m 2>&1 |
  "$results/report" -failures "$results/failures" -log bin/quick.log || { cat "$results/failures"; exit 1; }
