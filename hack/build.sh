#!/usr/bin/env bash
# Builds bin/everynode, and says how far it is while that takes long. Called by
# `make build`, which says in LDFLAGS what goes into the program.
set -euo pipefail
cd "$(dirname "$0")/.."

build() { CGO_ENABLED=0 go build -trimpath -ldflags "$LDFLAGS" "$@" -o bin/everynode ./cmd/everynode; }

# What is not the first build has most of its packages ready, and is quick.
if [ -e bin/everynode ]; then
  build
  exit
fi
echo "Building bin/everynode for the first time: it downloads its modules and compiles them, 5 to 15 minutes on two cores."
packages=$(CGO_ENABLED=0 go list -deps ./cmd/everynode 2> >(grep -v '^go: downloading ' >&2) | wc -l)
# -v names each package when it is begun; everything else is passed on.
build -v 2>&1 | awk -v all="$packages" -v terminal="$([ -t 1 ] && echo 1)" '
  /^go: downloading / { next }
  /^[a-z][^ :]*$/ {
    n++
    if (terminal) printf "\r  %d of %d packages", n, all
    else if (n % 250 == 0) printf "  %d of %d packages\n", n, all
    fflush(); next
  }
  { print (terminal && n ? "\n" : "") $0 }
  END { if (terminal && n) printf "\n" }'
