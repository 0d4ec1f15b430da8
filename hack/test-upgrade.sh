#!/usr/bin/env bash
# Builds the program as it was at a tag or commit, and upgrades small clusters from it to
# bin/everynode, and back: one of one server, and one of three. Called by `make test-upgrade`. Usage: hack/test-upgrade.sh [FROM]
# Without FROM it is the release before this commit; as long as there is none, the commit of
# 20 commits before, or the first one.
set -euo pipefail
cd "$(dirname "$0")/.."

from=${1:-}
if [ -n "$from" ]; then
  echo "== from $from, as it was asked for"
elif from=$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null); then
  echo "== from $from, the release before this commit"
else
  from=$(git rev-list --first-parent --max-count=21 HEAD | tail -1)
  echo "== from a commit of a while ago, since no release is before this commit"
fi
commit=$(git rev-parse --verify "$from^{commit}")
if [ "${ONLY_CHOOSE:-}" ]; then
  exit
fi
old=$(mktemp -d)
trap 'git worktree remove --force "$old/tree" 2>/dev/null || true; rm -rf "$old"' EXIT
git worktree add --quiet --detach "$old/tree" "$commit"
echo "== building $from ($(git log -1 --format='%h, %cd' --date=short "$commit"))"
make -C "$old/tree" --no-print-directory build
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
echo "== upgrading from it to bin/everynode, and back"
go run ./test/upgrade -old "$old/tree/bin/everynode" -new "$PWD/bin/everynode"
