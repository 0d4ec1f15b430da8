#!/usr/bin/env bash
# Builds containerd and runc, of the versions in tools/containerd.mod and tools/runc.mod, into a
# folder, unless they are there: newer ones than Debian's. runc needs a C compiler and, for the
# filters of system calls, libseccomp, whose archive is taken from Debian's package; nothing is
# installed on this machine. Usage: hack/newest-runtime.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
want="$(cat "$0" tools/containerd.mod tools/containerd.sum tools/runc.mod tools/runc.sum | sha256sum) $(go env GOVERSION GOARCH | tr '\n' ' ')"
if [ "$(cat "$folder/built" 2>/dev/null)" = "$want" ]; then
  exit
fi
missing=()
for program in gcc pkg-config; do
  command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "Missing: ${missing[*]}. Install them: apt-get install gcc libc6-dev pkg-config" >&2
  exit 1
fi
version() { sed -n "s,^\(require \)\?[[:space:]]*$2 v\([0-9.]*\).*,\2,p" "tools/$1.mod"; }
containerd=$(version containerd github.com/containerd/containerd/v2) runc=$(version runc github.com/opencontainers/runc)
echo "Building containerd $containerd and runc $runc; the first time takes some minutes."
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

export GOFLAGS="${GOFLAGS:-} -trimpath"
programs=github.com/containerd/containerd/v2/cmd
CGO_ENABLED=0 go build -modfile=tools/containerd.mod -tags urfave_cli_no_docs,netgo,osusergo \
  -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=v$containerd" \
  -o "$folder/" "$programs/containerd" "$programs/containerd-shim-runc-v2" "$programs/ctr"

(cd "$work" && apt-get -o APT::Sandbox::User=root download -q libseccomp-dev >/dev/null && dpkg-deb -x ./*.deb tree)
libraries=$(dirname "$(find "$work/tree" -name libseccomp.pc)")
CGO_ENABLED=1 PKG_CONFIG_SYSROOT_DIR="$work/tree" PKG_CONFIG_LIBDIR="$libraries" go build -modfile=tools/runc.mod \
  -tags seccomp,urfave_cli_no_docs,netgo,osusergo \
  -ldflags "-s -w -extldflags -static" -o "$folder/runc" github.com/opencontainers/runc
echo "$want" >"$folder/built"
