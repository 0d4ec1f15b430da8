#!/usr/bin/env bash
# Runs test/vm on a machine with Debian's trixie or bookworm, in namespaces of its own for
# processes, mounts and networks: nothing that it starts outlives it. `make vm` calls it, which has
# built bin/everynode before. Usage: hack/test-vm.sh SUITE [FLAGS OF THE TEST]
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-trixie}
shift || true # there may be none
if [ "$(id -u)" != 0 ] || ! command -v qemu-system-x86_64 >/dev/null; then
  echo "This needs root, and QEMU: apt-get install --no-install-recommends qemu-system-x86 debootstrap" >&2
  exit 1
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/everynode
hack/emulated-machine.sh "$suite" "$cache/emulated-$suite"
hack/newest-runtime.sh "$cache/newest-runtime"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/packages" "$work/programs" "$work/tmp"
mv "$(hack/package.sh v0.0.1 "$work" deb)" "$work/packages/old.deb"
mv "$(hack/package.sh v0.0.2 "$work" deb)" "$work/packages/new.deb"
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath" EVERYNODE_BINARY="$PWD/bin/everynode" TMPDIR="$work/tmp"
go build -o "$work/programs/hand" ./test/vm/hand
go test -c -o "$work/vm.test" ./test/vm
unshare --net --mount --pid --fork --kill-child --mount-proc "$work/vm.test" -test.v -test.timeout 60m \
  -machine "$cache/emulated-$suite" -packages "$work/packages" -programs "$work/programs" -runtime "$cache/newest-runtime" "$@"
