#!/usr/bin/env bash
# Builds the program as it was at a tag or commit, and upgrades a small cluster from it to
# bin/everynode, and back. Called by `make test-upgrade`. Usage: hack/test-upgrade.sh FROM
set -euo pipefail
cd "$(dirname "$0")/.."

commit=$(git rev-parse --verify "$1^{commit}")
old=$(mktemp -d)
trap 'git worktree remove --force "$old/tree" 2>/dev/null || true; rm -rf "$old"' EXIT
git worktree add --quiet --detach "$old/tree" "$commit"
echo "== building $1 ($(git log -1 --format='%h, %cd' --date=short "$commit"))"
make -C "$old/tree" --no-print-directory build
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
echo "== upgrading from it to bin/everynode, and back"
go run ./test/upgrade -old "$old/tree/bin/everynode" -new "$PWD/bin/everynode"
