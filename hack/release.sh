#!/usr/bin/env bash
# Makes everything of a release in bin/release, or another folder: for each architecture the program, a .deb,
# an .rpm and what it is made of; an image for all; the Helm chart; manual pages and
# completions; and the checksums of all that. Called by `make release`.
# Usage: LDFLAGS=... [ARCHS="amd64 arm64"] hack/release.sh VERSION [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."

version=$1 out=${2:-bin/release}
[ "$out" != bin/release ] || rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
images=()
for arch in ${ARCHS:-amd64 arm64}; do
  program=$out/everynode-$version-linux-$arch
  echo "== $arch"
  if [ "$arch" = "$(go env GOARCH)" ]; then cp bin/everynode "$program"; else hack/cross.sh "$arch" "$program"; fi
  for format in deb rpm; do
    ARCH=$arch PROGRAM=$program hack/package.sh "$version" "$out" "$format"
  done
  (cd tools && CGO_ENABLED=0 go run -trimpath -modfile=sbom.mod ./sbom "$program" "$version") >"$program.cdx.json"
  images+=("$arch=$program")
done
echo "== image, chart, manual"
CGO_ENABLED=0 go run -trimpath ./packaging/image -version "$version" -o "$out/everynode-$version-image.tar" "${images[@]}"
hack/chart.sh "$version" "$out"
share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
hack/manual.sh "$share"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$share" -czf "$out/everynode-$version-manual.tar.gz" man completion
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
