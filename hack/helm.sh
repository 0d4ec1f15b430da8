#!/usr/bin/env bash
# Builds the real Helm, for tests, as bin/helm-v4 or bin/helm-v3, of the version in
# tools/helm-v4.mod or tools/helm-v3.mod. A second run finds it done.
# Usage: hack/helm.sh v4|v3
set -euo pipefail
cd "$(dirname "$0")/.."
target="bin/helm-$1" modfile="tools/helm-$1.mod"
want="$(cat "$modfile" "tools/helm-$1.sum" | sha256sum) $(go env GOVERSION GOARCH | tr '\n' ' ')"
if [ -x "$target" ] && [ "$(cat "$target.built" 2>/dev/null)" = "$want" ]; then exit; fi
version=$(sed -n "s,.*helm.sh/helm/$1 \(v[0-9.]*\).*,\1,p" "$modfile")
echo "Building Helm $version for the tests; the first time takes about three minutes on two cores."
mkdir -p bin
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath" go build -modfile="$modfile" \
  -ldflags "-s -w -X helm.sh/helm/$1/internal/version.version=$version" -o "$target.new" "helm.sh/helm/$1/cmd/helm"
mv "$target.new" "$target"
echo "$want" >"$target.built"
