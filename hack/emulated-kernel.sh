#!/usr/bin/env bash
# Puts Debian's kernel for clouds, with its modules, into a folder, unless it is there. Nothing is
# installed on this machine. Usage: hack/emulated-kernel.sh FOLDER
set -euo pipefail
folder=$1
if [ -e "$folder/vmlinuz" ]; then
  exit
fi
name=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
if [ -z "$name" ]; then
  echo "apt knows no linux-image-cloud-amd64: run apt-get update" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get download -q "$name" && dpkg-deb -x ./*.deb tree)
mkdir -p "$folder"
modules=$(echo "$work"/tree/lib/modules/*)
if [ ! -d "$modules" ]; then
  modules=$(echo "$work"/tree/usr/lib/modules/*)
fi
rm -rf "$folder/modules"
cp -r "$modules" "$folder/modules"
cp "$work"/tree/boot/vmlinuz-* "$folder/vmlinuz.new"
mv "$folder/vmlinuz.new" "$folder/vmlinuz"
