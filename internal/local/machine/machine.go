// Package machine says what this machine has, and keeps account of what clusters changed on it.
package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/process"
)

// Machine is what was found out about this machine: whether it can run nodes
// made of containers.
type Machine struct {
	Root              bool
	Containerd        string // path, empty if not found
	ContainerdVersion string
	Runc              string
	Shim              string
	Iptables          string
	Nft               string
	CNIBin            string // folder with the plugins that are needed
}

// cniPlugins are the ones that the nodes' network uses.
var cniPlugins = []string{"bridge", "host-local", "portmap", "loopback"}

// cniFolders are where distributions, and everybody else, put the plugins.
var cniFolders = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// installHint is what gives a Debian or Ubuntu machine all of it.
const installHint = "apt-get install containerd runc containernetworking-plugins iptables nftables"

// LookPath returns where a program is; empty if it is nowhere.
func LookPath(name string) string {
	for dir := range strings.SplitSeq(process.SearchPath(), ":") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// Inspect looks at this machine.
func Inspect(ctx context.Context) Machine {
	m := Machine{
		Root:       os.Geteuid() == 0,
		Containerd: LookPath("containerd"),
		Runc:       LookPath("runc"),
		Shim:       LookPath("containerd-shim-runc-v2"),
		Iptables:   LookPath("iptables"),
		Nft:        LookPath("nft"),
	}
	for _, dir := range cniFolders {
		if hasAll(dir, cniPlugins) {
			m.CNIBin = dir
			break
		}
	}
	if m.Containerd != "" {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if out, err := exec.CommandContext(ctx, m.Containerd, "--version").Output(); err == nil {
			m.ContainerdVersion = parseContainerdVersion(string(out))
		}
	}
	return m
}

func hasAll(dir string, files []string) bool {
	for _, f := range files {
		if info, err := os.Stat(filepath.Join(dir, f)); err != nil || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// parseContainerdVersion takes the version out of "containerd SOURCE VERSION REVISION".
func parseContainerdVersion(text string) string {
	fields := strings.Fields(text)
	if len(fields) < 3 {
		return ""
	}
	return strings.TrimPrefix(fields[2], "v")
}

// Missing lists what keeps the machine from running nodes made of containers.
func (m Machine) Missing() []string {
	var missing []string
	for _, tool := range []struct{ found, name string }{
		{m.Containerd, "containerd"}, {m.Shim, "containerd-shim-runc-v2"}, {m.Runc, "runc"},
		{m.CNIBin, "the CNI plugins " + strings.Join(cniPlugins, ", ") + " (in " + strings.Join(cniFolders, " or ") + ")"},
		{m.Iptables, "iptables"}, {m.Nft, "nft"},
	} {
		if tool.found == "" {
			missing = append(missing, tool.name)
		}
	}
	return missing
}

// Choice is the runtime that was chosen and one plain sentence that says why
// and how to get the other.
type Choice struct {
	Runtime layout.Runtime
	Why     string
}

// ChooseRuntime decides what nodes are made of.
func ChooseRuntime(asked layout.Runtime, m Machine) (Choice, error) {
	missing := m.Missing()
	switch {
	case asked == layout.RuntimeSimulated:
		return Choice{layout.RuntimeSimulated,
			"Nodes are simulated, as asked; --runtime containerd runs real containers."}, nil
	case asked == layout.RuntimeContainerd && !m.Root:
		return Choice{},
			errors.New("--runtime containerd needs root, to make namespaces; run it with sudo, or use --runtime simulated")
	case asked == layout.RuntimeContainerd && len(missing) > 0:
		return Choice{}, fmt.Errorf("--runtime containerd needs %s; install it (%s), or use --runtime simulated",
			strings.Join(missing, " and "), installHint)
	case asked == layout.RuntimeContainerd:
		return Choice{layout.RuntimeContainerd, "Nodes run real containers with containerd " + m.ContainerdVersion +
			", as asked; --runtime simulated needs none."}, nil
	case !m.Root:
		return Choice{layout.RuntimeSimulated,
			"Nodes are simulated, because real containers need root; run it with sudo to get them."}, nil
	case len(missing) > 0:
		return Choice{layout.RuntimeSimulated, "Nodes are simulated, because this machine lacks " + strings.Join(missing,
			" and ") + "; for real containers: " + installHint}, nil
	default:
		return Choice{layout.RuntimeContainerd, "Nodes run real containers with containerd " + m.ContainerdVersion +
			", because this machine can; --runtime simulated needs none."}, nil
	}
}

// CgroupMounts are the roots of the machine's cgroup hierarchies: one with
// version 2, one per controller with version 1.
func CgroupMounts() []string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	var mounts []string
	for _, e := range entries {
		if e.IsDir() {
			mounts = append(mounts, filepath.Join(root, e.Name()))
		}
	}
	return mounts
}
