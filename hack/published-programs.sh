#!/usr/bin/env bash
# Builds the programs of others that `make published` runs on nodes into a folder, unless they are
# there. Each is built from its own module, with the versions that its own go.mod asks for: nothing
# here moves one of ours. Usage: hack/published-programs.sh FOLDER KUBERNETES-RELEASE
set -euo pipefail
cd "$(dirname "$0")/.."
to=$1 release=$2
mkdir -p "$to"
to=$(cd "$to" && pwd)
script=$(sha256sum <hack/published-programs.sh)

# build NAME PACKAGE MODULE@VERSION... makes a program; MODULEs after the first are those of which
# the program gets a newer version than it asks for.
build() {
  local name=$1 package=$2 want its
  shift 2
  want="$script $* $(go env GOVERSION GOARCH | tr '\n' ' ')"
  if [ -x "$to/$name" ] && [ "$(cat "$to/$name.built" 2>/dev/null)" = "$want" ]; then return; fi
  echo "Building $name of $1."
  mkdir -p "$to/$name.module"
  (
    cd "$to/$name.module"
    rm -f go.mod go.sum
    its=$(GOFLAGS=-mod=mod go mod download -json "$1" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
    printf 'module published\n\ngo %s\n\n' "$(sed -n 's/^go //p' "$its")" >go.mod # what Go does is what it does for the program's own module
    printf 'require %s\n' "${@//@/ }" >>go.mod
    GOFLAGS="-trimpath -mod=mod" go build -tags "$tags" -ldflags "$linked" -o "$to/$name.new" "$package"
  )
  mv "$to/$name.new" "$to/$name"
  echo "$want" >"$to/$name.built"
}

export CGO_ENABLED=0
linked='-s -w' tags=netgo,osusergo
build metrics-server sigs.k8s.io/metrics-server/cmd/metrics-server sigs.k8s.io/metrics-server@v0.9.0
build sample-apiserver k8s.io/sample-apiserver k8s.io/sample-apiserver@v0.37.2
build local-path-provisioner github.com/rancher/local-path-provisioner github.com/rancher/local-path-provisioner@v0.0.30
# Of the kinds of places where it looks for what there is to scrape, Kubernetes only.
tags=netgo,osusergo,remove_all_sd,enable_kubernetes_sd build prometheus github.com/prometheus/prometheus/cmd/prometheus \
  github.com/prometheus/prometheus@v0.313.0
# The newest of these plugins with flannel among them. Its own repository cannot be had as a module.
build flannel-plugin github.com/containernetworking/plugins/plugins/meta/flannel github.com/containernetworking/plugins@v0.9.1
# The library of one cloud that it asks for cannot be had in that version, but in a newer one. One of its
# backends is written in C on this architecture.
if ! command -v gcc >/dev/null; then
  echo "Missing: gcc. Install it: apt-get install gcc libc6-dev" >&2
  exit 1
fi
CGO_ENABLED=1 linked='-s -w -extldflags -static' build flanneld github.com/flannel-io/flannel \
  github.com/flannel-io/flannel@v0.28.4 github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common@v1.3.210
hack/foreign-kubernetes.sh "$release" "$to" test/images/sample-device-plugin
