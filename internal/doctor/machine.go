// Package doctor looks at a machine and at a cluster; package diagnosis says what is wrong
// with what is seen. It changes nothing.
package doctor

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/doctor/diagnosis"
	"github.com/everynode/everynode/internal/files/datadir"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/version"
)

// Machine looks at this machine, whose control plane has its data in that folder, if there
// is one.
func Machine(dataDir string, now time.Time) diagnosis.Machine {
	m := diagnosis.Machine{Now: now, DataDir: dataDir, Node: os.Geteuid() == 0}
	_, err := os.Stat(filepath.Join(dataDir, "pki"))
	m.Server = err == nil || errors.Is(err, os.ErrPermission)
	// The agent's folder, as its flag has it by default.
	_, err = os.Stat("/var/lib/everynode-agent")
	m.Joined = err == nil
	m.Runs = locked(filepath.Join(dataDir, "server.lock"))
	m.Program = diagnosis.Program{Here: version.Version, Data: datadir.Version}
	if written, err := datadir.ReadWritten(dataDir); err != nil {
		m.Program.Problem = err.Error()
	} else {
		m.Program.WroteVersion, m.Program.WroteData = written.Everynode, written.Data
	}
	if m.Server {
		lookAtCertificates(&m)
	}
	for _, place := range []struct{ path, what string }{
		{dataDir, "the control plane's data"}, {"/var/lib/containerd", "images and containers"}, {"/var/log", "logs"},
	} {
		if disk, ok := disk(place.path, place.what); ok && !slices.ContainsFunc(m.Disks, func(d diagnosis.Disk) bool {
			return same(d, disk)
		}) {
			m.Disks = append(m.Disks, disk)
		}
	}
	m.Modules, m.Cgroups, m.Tools = modules(), cgroups("/sys/fs/cgroup"), tools()
	m.Ports = []diagnosis.Port{port(6443, "the API", "--listen (or --api-port for \"everynode up\")")}
	return m
}

func lookAtCertificates(m *diagnosis.Machine) {
	items, err := pki.Inspect(filepath.Join(m.DataDir, "pki"))
	if err != nil {
		m.CertificatesProblem = err.Error()
		return
	}
	for _, i := range items {
		if !i.Until.IsZero() && i.Hash != "" {
			m.Certificates = append(m.Certificates, diagnosis.Certificate{
				File:  i.File,
				Until: i.Until,
				Authority: slices.Contains(
					[]string{pki.ClusterAuthority + ".crt", pki.NodeAuthority + ".crt"}, i.File),
			})
		}
	}
}

// locked reports whether a process holds the lock of that file, as a server does.
func locked(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // That gives the lock back, too.
	return errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// disk looks at the file system of a folder; there is none for one that does not exist.
func disk(path, what string) (d diagnosis.Disk, ok bool) {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil {
		return d, false
	}
	size := uint64(s.Bsize) //nolint:gosec // It is never less than nothing.
	return diagnosis.Disk{
		Path: path, For: what, Bytes: s.Blocks * size, BytesFree: s.Bavail * size, Files: s.Files, FilesFree: s.Ffree,
		ReadOnly: s.Flags&unix.ST_RDONLY != 0,
	}, true
}

// same reports whether two folders are on one file system, as far as that matters.
func same(a, b diagnosis.Disk) bool {
	return a.Bytes == b.Bytes && a.Files == b.Files && a.FilesFree == b.FilesFree && a.ReadOnly == b.ReadOnly
}

// modules looks for the parts of the kernel that nodes use.
func modules() []diagnosis.Module {
	all := []diagnosis.Module{
		{Name: "overlay", For: "containers' file systems are made of it"},
		{Name: "bridge", For: "pods' networks are made of it"},
		{Name: "veth", For: "pods' networks are made of it"},
		{Name: "nf_tables", For: "Services are made of it"},
		{Name: "nf_conntrack", For: "Services are made of it"},
		{Name: "vxlan", For: "nodes that are not on one network link reach each other through it"},
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return nil
	}
	folder := filepath.Join("/lib/modules", unix.ByteSliceToString(kernel.Release[:]))
	builtIn, _ := os.ReadFile(filepath.Join(folder, "modules.builtin"))
	loadable, unknown := os.ReadFile(filepath.Join(folder, "modules.dep"))
	// All symbols of the kernel; a module has some with its name in brackets, and what is
	// compiled in has an initcall.
	symbols, _ := os.ReadFile("/proc/kallsyms")
	systems, _ := os.ReadFile("/proc/filesystems")
	for i := range all {
		m := &all[i]
		_, loaded := os.Stat("/sys/module/" + m.Name)
		file := []byte("/" + m.Name + ".ko")
		m.There = loaded == nil || bytes.Contains(builtIn, file) || bytes.Contains(systems, []byte("\t"+m.Name+"\n")) ||
			bytes.Contains(symbols, []byte(" "+initcalls[m.Name]+"\n"))
		m.Loadable = bytes.Contains(loadable, file)
		if unknown != nil && len(symbols) == 0 {
			// Nothing tells what this kernel has, as in many containers; then nothing is said.
			m.There = true
		}
	}
	return all
}

// initcalls are functions that only a kernel with the module in it has.
var initcalls = map[string]string{
	"overlay": "ovl_fill_super", "bridge": "br_add_bridge", "veth": "veth_newlink", "nf_tables": "nf_tables_newtable",
	"nf_conntrack": "nf_conntrack_in", "vxlan": "vxlan_newlink",
}

// cgroups looks at the kernel's groups of processes.
func cgroups(root string) (c diagnosis.Cgroups) {
	if list, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil {
		return diagnosis.Cgroups{Version: 2, Controllers: strings.Fields(string(list))}
	}
	folders, err := os.ReadDir(root)
	if err != nil || len(folders) == 0 {
		return c
	}
	c.Version = 1
	for _, f := range folders {
		c.Controllers = append(c.Controllers, strings.Split(f.Name(), ",")...)
	}
	return c
}

// tools looks for what a node calls.
func tools() []diagnosis.Tool {
	all := []diagnosis.Tool{
		{Name: "containerd", Package: "containerd", For: "it runs the containers"},
		{Name: "runc", Package: "runc", For: "containerd starts containers with it"},
		{Name: "iptables", Package: "iptables", For: "CNI plugins call it"},
		{Name: "nft", Package: "nftables", For: "it helps to look at the rules of Services"},
	}
	for i := range all {
		all[i].There = found(all[i].Name)
	}
	plugins := diagnosis.Tool{
		Name:    "CNI plugins",
		Package: "containernetworking-plugins",
		For:     "pods' networks are made with them",
	}
	for _, folder := range []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} {
		if _, err := os.Stat(filepath.Join(folder, "bridge")); err == nil {
			plugins.There = true
		}
	}
	return append(all, plugins)
}

// found reports whether a program is here, also where root's folders are not in the path.
func found(program string) bool {
	if _, err := exec.LookPath(program); err == nil {
		return true
	}
	for _, folder := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if _, err := exec.LookPath(filepath.Join(folder, program)); err == nil {
			return true
		}
	}
	return false
}
