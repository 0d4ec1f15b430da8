#!/usr/bin/env bash
# Builds the program as it was at a tag or commit, and upgrades small clusters from it to
# bin/everynode, and back: one of one server, and one of three. Then the program as it was before it knew content of
# revisions takes the place of bin/everynode, and bin/everynode its own again. Called by `make test-upgrade`.
# Usage: hack/test-upgrade.sh [FROM]. With SCENARIOS (test/upgrade/main.go) only these are played, and what they need is built.
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
# The last commit at which the program knew no content, no pinned images, no variants and no NodeStartups.
before_content=712b531c61e7565c66bcf1d18d5e005b1ced0dd0

work=$(mktemp -d)
trap 'for t in "$work"/*/tree; do git worktree remove --force "$t" 2>/dev/null || true; done; rm -rf "$work"' EXIT
# program NAME COMMIT builds the program as it was, in a folder of that name.
program() {
  git worktree add --quiet --detach "$work/$1/tree" "$2"
  echo "== building $(git log -1 --format='%h, %cd' --date=short "$2")"
  make -C "$work/$1/tree" --no-print-directory build
}
wanted() { [ -z "${SCENARIOS:-}" ] || [[ ",$SCENARIOS," == *",$1,"* ]]; }
if wanted steps || wanted variants || wanted agents; then
  program old "$commit"
fi
if wanted content || wanted middle || wanted turns || wanted sizes || wanted agents; then
  program older "$before_content"
fi
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
echo "== upgrading to bin/everynode, and back"
go run ./test/upgrade -old "$work/old/tree/bin/everynode" -older "$work/older/tree/bin/everynode" -new "$PWD/bin/everynode" \
  -only "${SCENARIOS:-}"
