package diagnosis

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Machine is what was seen of a machine.
type Machine struct {
	Now time.Time
	// DataDir is the folder of the control plane; Server tells that there is one, or was, and
	// Runs that it runs.
	DataDir      string
	Server, Runs bool
	// Node tells that containers can be to run here; Joined, that an agent has joined a cluster from here.
	Node, Joined bool

	Program Program
	Disks   []Disk
	// Certificates are those of the data folder. CertificatesProblem is why they cannot be read.
	Certificates        []Certificate
	CertificatesProblem string
	Modules             []Module
	Ports               []Port
	Cgroups             Cgroups
	// Tools are programs and files that a node needs.
	Tools []Tool
}

// Program is a version of Everynode.
type Program struct {
	// Here is the version of this program, and Data the newest version of data that it knows.
	Here string
	Data int
	// WroteVersion and WroteData are those of the program that wrote the data folder last.
	WroteVersion string
	WroteData    int
	// Problem is why that is not known.
	Problem string
}

// Disk is a file system.
type Disk struct {
	// Path is the folder that it is about, For what is kept there.
	Path, For string
	// Bytes and Files are how many there can be. Files is 0 where there is no such limit.
	Bytes, BytesFree, Files, FilesFree uint64
	ReadOnly                           bool
}

// Certificate is one with an end.
type Certificate struct {
	File  string
	Until time.Time
	// Authority tells that it signs others; the server does not renew it by itself.
	Authority bool
}

// Module is a part of the kernel.
type Module struct {
	Name, For string
	// There tells that it is in the kernel, loaded or built in; Loadable, that it can be.
	There, Loadable bool
}

// Port is one that Everynode wants to listen at.
type Port struct {
	Number int
	For    string
	// Taken tells that somebody listens there: By is the program and PID its process, if
	// they are known.
	Taken bool
	By    string
	PID   int
	// Flag chooses another one.
	Flag string
}

// Cgroups are the kernel's groups of processes.
type Cgroups struct {
	// Version is 1 or 2; 0 if they are not mounted.
	Version int
	// Controllers are those that can be used.
	Controllers []string
}

// Tool is a program, or a folder of programs, that a node needs.
type Tool struct {
	Name, Package, For string
	There              bool
}

// OfMachine says what is wrong with a machine, problems first.
func OfMachine(m Machine) []Finding {
	var all []Finding
	for _, check := range []struct {
		name string
		look func(*findings, *Machine)
	}{
		{"versions", machineVersions}, {"disk", disks}, {"certificates", certificates},
		{"kernel", modules}, {"cgroups", cgroups}, {"programs", tools}, {"ports", ports},
	} {
		f := findings{check: check.name}
		check.look(&f, &m)
		all = append(all, f.all...)
	}
	return inOrder(all)
}

func machineVersions(f *findings, m *Machine) {
	p := m.Program
	switch {
	case p.Problem != "":
		f.add(Problem, m.DataDir, "cat "+filepath.Join(m.DataDir, "version.json"),
			"it is not known which version wrote the data: %s", p.Problem)
	case p.WroteData > p.Data:
		f.add(Problem, m.DataDir, "everynode version", "everynode %s wrote the data, in a form that this one, %s, does "+
			"not know; run that version or a newer one", p.WroteVersion, p.Here)
	}
}

// How full a disk may be. Nodes end pods to make room from 10 % free on.
const (
	littleRoom = 0.15
	noRoom     = 0.05
)

func disks(f *findings, m *Machine) {
	for _, d := range m.Disks {
		if d.ReadOnly {
			f.add(Problem, d.Path, "mount -o remount,rw "+d.Path, "the file system of %s can only be read; the kernel does "+
				"that when the disk is broken, so look at dmesg first", d.For)
			continue
		}
		remedy := "du -xhd1 " + d.Path + " | sort -h"
		for _, what := range []struct {
			name      string
			all, free uint64
		}{{"room", d.Bytes, d.BytesFree}, {"file entries", d.Files, d.FilesFree}} {
			if what.all == 0 {
				continue
			}
			share := float64(what.free) / float64(what.all)
			percent := int(math.Round(share * 100))
			switch {
			case share < noRoom:
				f.add(Problem, d.Path, remedy,
					"%d %% of the %s for %s is left; without any nothing can be written", percent, what.name, d.For)
			case share < littleRoom:
				f.add(Warning, d.Path, remedy, "%d %% of the %s for %s is left", percent, what.name, d.For)
			}
		}
	}
}

// When the end of a certificate is near. The server renews its own a third of their time
// before, so what is this near was not renewed.
const (
	endsSoon = 7 * 24 * time.Hour
	endsOnce = 60 * 24 * time.Hour
)

func certificates(f *findings, m *Machine) {
	if m.CertificatesProblem != "" {
		f.add(Problem, m.DataDir, "everynode certificates list --data-dir "+m.DataDir,
			"the certificates cannot be read: %s", m.CertificatesProblem)
	}
	for _, c := range m.Certificates {
		remedy := "everynode certificates renew --data-dir " + m.DataDir
		if c.Authority {
			remedy = "everynode certificates rotate-ca --data-dir " + m.DataDir
		}
		switch left := c.Until.Sub(m.Now); {
		case left <= 0:
			f.add(Problem, c.File, remedy, "the certificate expired %s ago", long(-left))
		case left < endsSoon:
			f.add(Problem, c.File, remedy, "the certificate expires in %s", long(left))
		case c.Authority && left < endsOnce:
			f.add(Warning, c.File, remedy, "the authority expires in %s, and everything that it signed with it", long(left))
		}
	}
}

func modules(f *findings, m *Machine) {
	if !m.Node || m.noNode() {
		return
	}
	for _, module := range m.Modules {
		switch {
		case module.There:
		case module.Loadable:
			load := fmt.Sprintf("modprobe %s && echo %[1]s >/etc/modules-load.d/everynode-%[1]s.conf", module.Name)
			f.add(Warning, module.Name, load, "the kernel module %s is not loaded; %s", module.Name, module.For)
		default:
			f.add(Problem, module.Name, "apt-get install linux-image-amd64 && reboot",
				"this kernel (see uname -r) does not have the module %s; %s", module.Name, module.For)
		}
	}
}

func cgroups(f *findings, m *Machine) {
	if !m.Node || m.noNode() {
		return
	}
	if m.Cgroups.Version == 0 {
		f.add(Problem, "/sys/fs/cgroup", "mount -t cgroup2 none /sys/fs/cgroup",
			"no cgroups are mounted; without them no container starts")
		return
	}
	var missing []string
	for _, name := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(m.Cgroups.Controllers, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		f.add(Problem, "/sys/fs/cgroup", "cat /proc/cmdline", "the cgroups cannot limit %s; remove cgroup_disable= from "+
			"the kernel's command line, or add cgroup_enable=%s", strings.Join(missing, ", "), missing[0])
	}
}

func tools(f *findings, m *Machine) {
	if !m.Node {
		return
	}
	if m.noNode() {
		f.add(Warning, "this machine", "apt-get install containerd runc containernetworking-plugins iptables nftables    "+
			"# if it is to be a node", "it has a control plane and no containerd: no containers can run here")
		return
	}
	for _, t := range m.Tools {
		if !t.There {
			f.add(Problem, t.Name, "apt-get install "+t.Package, "%s is missing; %s", t.Name, t.For)
		}
	}
}

// noNode tells that a machine has a control plane, and neither an agent nor what would run containers for one.
func (m *Machine) noNode() bool {
	missing := func(t Tool) bool { return t.Name == "containerd" && !t.There }
	return m.Server && !m.Joined && slices.ContainsFunc(m.Tools, missing)
}

func ports(f *findings, m *Machine) {
	if m.Runs {
		return // They are its own.
	}
	for _, p := range m.Ports {
		if !p.Taken {
			continue
		}
		by, remedy := "another program", fmt.Sprintf("ss -ltnp 'sport = :%d'", p.Number)
		if p.PID != 0 {
			by = fmt.Sprintf("%s (process %d)", p.By, p.PID)
		}
		f.add(Warning, fmt.Sprintf("port %d", p.Number), remedy,
			"%s listens at the port for %s; end it, or choose another port with %s", by, p.For, p.Flag)
	}
}
