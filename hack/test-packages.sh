#!/usr/bin/env bash
# Prints each package that has tests, after what its test binary links: "server" for a server, of which etcd is a part,
# which is large and takes seconds to link, or "light". "random" stands behind those that draw their cases at random.
set -euo pipefail
cd "$(dirname "$0")/.."
go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... |
  awk '$1 ~ /\.test$/ {
    kind = / go\.etcd\.io\/etcd\/server\// ? "server" : "light"
    draws = / pgregory\.net\/rapid( |$)/ ? "random" : ""
    sub(/\.test$/, "", $1)
    print kind, $1, draws
  }'
