#!/usr/bin/env bash
# Installs the programs that a node needs, with apt, where they are missing; with the
# argument "tests" those that the tests need as well.
set -euo pipefail

declare -A package=(
  [containerd]=containerd [runc]=runc [nft]=nftables [iptables]=iptables
  [ip]=iproute2 [nsenter]=util-linux
)
[ "${1:-}" = tests ] && package[chromium]=chromium package[rpm]=rpm package[openssl]=openssl
missing=()
for program in "${!package[@]}"; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing+=("${package[$program]}")
done
[ -x /usr/lib/cni/bridge ] || [ -x /opt/cni/bin/bridge ] || missing+=(containernetworking-plugins)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" != 0 ]; then
  echo "Missing: ${missing[*]}. Install them as root, for example: apt-get install ${missing[*]}" >&2
  exit 1
fi
if ! command -v apt-get >/dev/null; then
  echo "Missing: ${missing[*]}. This script knows only apt; install them with your system's package manager." >&2
  exit 1
fi
echo "Installing ${missing[*]} ..."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "apt-get failed; see above." >&2
  exit 1
fi
