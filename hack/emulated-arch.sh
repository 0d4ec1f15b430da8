#!/usr/bin/env bash
# Runs everynode as it is built for another architecture, with QEMU's emulation of processors: it says its version, serves
# a cluster of simulated nodes until a DaemonSet is on all of them, and ends in order. Called by `make emulated`.
# Give it the machine for itself: where the processor is emulated and shared, too, the server's first steps take longer than
# it gives them, and it ends. QEMU=env runs the program as it is, which tries this script.
# Usage: LDFLAGS=... hack/emulated-arch.sh ARCH [PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/.."

arch=$1 program=${2:-}
case $arch in
arm64) machine=aarch64 ;;
amd64) machine=x86_64 ;;
*) echo "$arch: it is built for amd64 and arm64" >&2 && exit 1 ;;
esac
qemu=${QEMU:-$(command -v "qemu-$machine-static" || command -v "qemu-$machine")} || {
  echo "qemu-$machine-static is missing; install it, for example: apt-get install qemu-user-static" >&2
  exit 1
}
work=$(mktemp -d)
server=
finish() {
  if [ -n "$server" ]; then kill -9 "$server" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT
if [ -z "$program" ]; then
  program=$work/everynode
  echo "Building for $arch; the first time takes as long as the first build."
  hack/cross.sh "$arch" "$program"
fi
run() { "$qemu" "$program" "$@"; }
nodes=5

echo "== version"
run version
echo "== a control plane with $nodes simulated nodes"
"$qemu" "$program" server --data-dir "$work/data" --listen 127.0.0.1:0 --simulated-nodes $nodes >"$work/log" 2>&1 &
server=$!
# An emulated processor is ten times slower than a real one, or more.
for _ in $(seq 600); do
  if [ "$(run kubectl --data-dir "$work/data" get --raw /readyz 2>/dev/null)" = ok ]; then ready=1 && break; fi
  if ! kill -0 "$server" 2>/dev/null; then break; fi
  sleep 1
done
if [ -z "${ready:-}" ]; then
  grep -E '^(everynode:|panic|[EF][0-9]{4} )' "$work/log" | cut -c1-300 | tail -n 10 >&2 || true
  echo "The server is not ready after $SECONDS s; see above." >&2
  exit 1
fi
echo "ready after $SECONDS s"
run kubectl --data-dir "$work/data" apply -f examples/log-agent.yaml
run kubectl --data-dir "$work/data" -n kube-system rollout status daemonset/log-agent --timeout 600s
run kubectl --data-dir "$work/data" -n kube-system get daemonset log-agent
available=$(run kubectl --data-dir "$work/data" -n kube-system get daemonset log-agent -o 'jsonpath={.status.numberAvailable}')
if [ "$available" != "$nodes" ]; then
  echo "$available of $nodes pods are available." >&2
  exit 1
fi
run kubectl --data-dir "$work/data" get nodes -o wide
echo "== its end"
kill "$server"
code=0
wait "$server" || code=$?
server=
if [ "$code" != 0 ]; then
  tail -n 30 "$work/log" >&2
  echo "The server ended with $code; see above." >&2
  exit 1
fi
echo "It all took $SECONDS s."
