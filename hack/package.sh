#!/usr/bin/env bash
# Makes a package of a built program: of bin/everynode, or of PROGRAM, which is for the
# architecture ARCH. Manual pages and completions come from bin/everynode.
# Usage: [ARCH=arm64 PROGRAM=FILE] hack/package.sh VERSION [FOLDER] [deb|rpm]
set -euo pipefail
cd "$(dirname "$0")/.."

# A package's version starts with a digit: a tag without its v, or else the commit
# below every release, ordered by date.
case "$1" in
  v[0-9]*) VERSION=$(echo "${1#v}" | sed 's/-\(rc\|alpha\|beta\)/~\1/; s/-/+/g') ;;
  *) VERSION="0~git$(git log -1 --format=%cd --date=format:%Y%m%d%H%M%S 2>/dev/null || echo 0).${1//-/.}" ;;
esac
ARCH=${ARCH:-$(go env GOARCH)} PROGRAM=${PROGRAM:-bin/everynode} format=${3:-deb}
SHARE=$(mktemp -d)
trap 'rm -rf "$SHARE"' EXIT
hack/manual.sh "$SHARE"
export VERSION ARCH PROGRAM SHARE
# Each format has names of its own for architectures.
name=everynode_${VERSION}_$ARCH.deb
if [ "$format" = rpm ]; then
  case "$ARCH" in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; *) machine=$ARCH ;; esac
  name=everynode-$VERSION-1.$machine.rpm
fi
package="${2:-bin}/$name"
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath" go tool -modfile=tools/nfpm.mod nfpm package \
  --config packaging/nfpm.yaml --packager "$format" --target "$package" >/dev/null
echo "$package"
