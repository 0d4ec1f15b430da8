#!/usr/bin/env bash
# Builds the programs of Kubernetes itself and etcd into a folder, for `make foreign`, or of Kubernetes
# those that are named: hack/foreign-kubernetes.sh RELEASE FOLDER [PACKAGE...]
#
# k8s.io/kubernetes cannot be imported, and Everynode never does. It is a module all the
# same: a module of its own, outside of this project, requires it, and says which
# published versions take the place of the folders that it has for its libraries.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1 # such as v1.36.3
to=$2
shift 2

libraries=v0.${release#v1.}
module=$to/module
mkdir -p "$module"

# The same as the rest of the project's builds: what two have in common is compiled once.
export CGO_ENABLED=0 GOFLAGS="-trimpath"
wanted=("$@")
if [ ${#wanted[@]} -eq 0 ]; then
  wanted=(cmd/kube-apiserver cmd/kube-scheduler cmd/kube-controller-manager)
  [ -x "$to/etcd" ] || go build -ldflags '-s -w' -o "$to/etcd" go.etcd.io/etcd/server/v3
fi
missing=()
for package in "${wanted[@]}"; do
  [ -x "$to/${package##*/}" ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

sources=$(cd "$module" && GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@$release" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
{
  echo 'module foreign'
  sed -n '/^go /p' "$sources/go.mod"
  echo "require k8s.io/kubernetes $release"
  sed -n "s,^[[:space:]]*\(replace \)\?\(k8s.io/[a-z-]*\) => ./staging.*,replace \2 => \2 $libraries,p" "$sources/go.mod"
} >"$module/go.mod"

echo "Building Kubernetes $release: ${missing[*]}. The first time all of it takes about 10 minutes on two cores."
version=k8s.io/component-base/version
for package in "${missing[@]}"; do
  program=${package##*/}
  (cd "$module" && go build -mod=mod -o "$to/$program.new" \
    -ldflags "-s -w -X $version.gitVersion=$release -X $version.gitMajor=1 -X $version.gitMinor=$(echo "$release" | cut -d. -f2)" \
    "k8s.io/kubernetes/$package")
  mv "$to/$program.new" "$to/$program"
done
