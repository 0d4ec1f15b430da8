#!/usr/bin/env bash
# Makes the disk of a machine with Debian for the emulator, with its kernel, in a folder, unless it
# is there: what a small installation has, Python as Debian's images for clouds have it, and the packages
# that a node needs in apt's own store, so that a machine without a network can install them. Nothing is
# installed on this machine.
# Usage: hack/emulated-machine.sh trixie|bookworm FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
suite=$1 folder=$2

# What the package recommends is what apt installs with it.
recommended=$(sed -n '/^recommends:/,/^contents:/s/^  - \([a-z0-9-]*\).*/\1/p' packaging/nfpm.yaml)
want=$(echo "$recommended" | cat "$0" - | sha256sum)
if [ "$(cat "$folder/made-from" 2>/dev/null)" = "$want" ]; then
  exit
fi
missing=()
for program in debootstrap mke2fs; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "Missing: ${missing[*]}. Install them: apt-get install debootstrap e2fsprogs" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "Installing Debian into a folder needs root." >&2
  exit 1
fi
# In a mount namespace of its own, so that no mount outlives it.
if [ -z "${EMULATED_MACHINE_INSIDE:-}" ]; then
  EMULATED_MACHINE_INSIDE=yes exec unshare --mount --propagation private "$0" "$suite" "$folder"
fi

mirror=${DEBIAN_MIRROR:-$(cat /etc/apt/sources.list.d/debian.sources 2>/dev/null | sed -n 's/^URIs: *//p' | head -n 1)}
mirror=${mirror:-http://deb.debian.org/debian}
mkdir -p "$folder"
work=$(mktemp -d "$folder/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
log=$folder/made.log
echo "Making a machine with Debian's $suite from $mirror; it takes some minutes, once."
run() { # COMMAND...: its output is shown only if it fails
  "$@" >>"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    echo "$1 failed; all output is in $log" >&2
    exit 1
  }
}
: >"$log"
packages=systemd,systemd-sysv,dbus,udev,iproute2,kmod,ca-certificates,apparmor,linux-image-cloud-amd64,initramfs-tools,procps,e2fsprogs,python3
run debootstrap --variant=minbase --include="$packages" "$suite" "$root" "$mirror"
# shellcheck disable=SC2086 # One word per package.
run chroot "$root" apt-get install --yes --download-only $recommended

cp "$(echo "$root"/boot/vmlinuz-*)" "$work/vmlinuz"
cp "$(echo "$root"/boot/initrd.img-*)" "$work/initrd.img"
# Each machine has an identity of its own.
: >"$root/etc/machine-id"
rm -f "$root/etc/hostname"
echo "nameserver 10.77.0.254" >"$root/etc/resolv.conf"
mkdir -p "$root/var/log/journal"
cat >"$root/etc/fstab" <<'END'
/dev/vda / ext4 defaults 0 1
LABEL=tools /tools ext4 ro 0 0
END
mkdir -p "$root/tools"
# eth0 leads to whoever made the machine; what else it has he says on the kernel's command line.
cat >"$root/etc/systemd/network/eth0.network" <<'END'
[Match]
Name=eth0
[Network]
Address=10.0.2.15/24
LinkLocalAddressing=no
END
cat >"$root/etc/systemd/system/hand.service" <<'END'
# Does what the machine's maker asks for.
[Unit]
RequiresMountsFor=/tools
DefaultDependencies=no
After=sysinit.target
Before=systemd-networkd.service
[Service]
Type=notify
ExecStart=/tools/programs/hand
Restart=always
OOMScoreAdjust=-1000
[Install]
WantedBy=multi-user.target
END
run chroot "$root" systemctl enable systemd-networkd hand.service
truncate -s 4G "$work/disk.img"
run mke2fs -q -t ext4 -L root -d "$root" "$work/disk.img"
mv "$work/vmlinuz" "$work/initrd.img" "$work/disk.img" "$folder/"
echo "$want" >"$folder/made-from"
