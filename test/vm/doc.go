// Package vm proves nodes on real machines: Debian with its own kernel, systemd and containerd, under an emulator. A
// machine installs the package, joins, and runs daemons; it is rebooted, loses its power and its network, and its agent
// and its containerd are restarted and replaced by newer ones. Another is rebooted again and again: its daemons start
// and end in their order. `make vm` makes the machine's disk and runs it, in a network of its own.
package vm
