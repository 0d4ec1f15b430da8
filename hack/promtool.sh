#!/usr/bin/env bash
# Makes bin/promtool, with which the tests check alert rules, out of Debian's package of Prometheus. The package is not
# installed: it would bring a server along, and start it. Where there is no such package, the tests say what they leave out.
set -euo pipefail
cd "$(dirname "$0")/.."
if command -v promtool >/dev/null || [ -x bin/promtool ]; then exit; fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
  echo "promtool is missing, and this is no Debian: the tests of the alert rules are skipped. Install Prometheus' promtool to run them." >&2
  exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # apt gives up its rights for the download
download() { (cd "$work" && apt-get -q download prometheus) >"$work/log" 2>&1; }
if ! download && ! { [ "$(id -u)" = 0 ] && apt-get -q update >"$work/log" 2>&1 && download; }; then
  tail -n 5 "$work/log" >&2
  echo "promtool could not be had (see above): the tests of the alert rules are skipped." >&2
  exit
fi
dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar -x -C "$work" ./usr/bin/promtool
mkdir -p bin
install -m 755 "$work/usr/bin/promtool" bin/promtool.new
mv bin/promtool.new bin/promtool
