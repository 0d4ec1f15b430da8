#!/usr/bin/env bash
# Makes a Debian package of bin/everynode, which `make package` has built before.
# Usage: hack/package.sh VERSION [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."

# A Debian version starts with a digit: a tag without its v, or else the commit
# below every release, ordered by date.
case "$1" in
  v[0-9]*) VERSION=$(echo "${1#v}" | sed 's/-\(rc\|alpha\|beta\)/~\1/; s/-/+/g') ;;
  *) VERSION="0~git$(git log -1 --format=%cd --date=format:%Y%m%d%H%M%S 2>/dev/null || echo 0).${1//-/.}" ;;
esac
ARCH=$(go env GOARCH)
export VERSION ARCH
package="${2:-bin}/everynode_${VERSION}_$ARCH.deb"
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath" go tool -modfile=tools/nfpm.mod nfpm package \
  --config packaging/nfpm.yaml --packager deb --target "$package" >/dev/null
echo "$package"
