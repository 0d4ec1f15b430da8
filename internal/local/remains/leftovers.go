// Package remains finds what is left of a cluster on this machine, and removes it.
package remains

import (
	"maps"
	"slices"

	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/machine"
	"github.com/everynode/everynode/internal/local/process"
)

// Observed is what the machine shows of a cluster, whatever its state file says.
type Observed struct {
	BootID string
	// Alive holds the processes of the state file that still run.
	Alive map[process.Process]bool
	// Strays are processes in the cluster's network namespaces: a node's
	// process 1, or what a person started there.
	Strays   []process.Process
	Netns    []string
	HostLink bool
	Cgroups  []string // folders, each with everything below it
}

// RemovalKind says how a thing is removed.
type RemovalKind string

const (
	// RemoveServer stops the control plane and gives it time to do so.
	RemoveServer RemovalKind = "server"
	// RemoveProcess kills a process, with a node's first process all of the node.
	RemoveProcess RemovalKind = "process"
	// RemoveHostLink removes the host's link into the cluster.
	RemoveHostLink RemovalKind = "host link"
	// RemoveNetns removes a named network namespace.
	RemoveNetns RemovalKind = "network namespace"
	// RemoveNAT removes the packet filter table.
	RemoveNAT RemovalKind = "nftables table"
	// RemoveCgroup removes a cgroup and those below it.
	RemoveCgroup RemovalKind = "cgroup"
	// RemoveDir removes a folder outside the data dir, if it is empty.
	RemoveDir RemovalKind = "folder"
	// RemoveForwarding switches the host's IPv4 forwarding off again.
	RemoveForwarding RemovalKind = "IPv4 forwarding"
)

// Removal is one thing to remove.
type Removal struct {
	Kind    RemovalKind
	Name    string
	Process process.Process
}

// planRemoval lists what must be removed so that nothing of a cluster is left
// but its data, in an order in which it can be: first the nodes with all their
// processes and mounts, then the server, then what these held.
func planRemoval(s layout.State, o Observed) []Removal {
	removals := planEnds(s, o)
	// The link shows other clusters that this one exists, so it goes after what
	// they might take away; the switch, whose end ends the link too, just before.
	for _, name := range slices.Backward(o.Netns) {
		removals = append(removals, Removal{Kind: RemoveNetns, Name: name})
	}
	if o.HostLink {
		removals = append(removals, Removal{Kind: RemoveHostLink, Name: s.Plan.HostLink()})
	}
	if s.Plan.Runtime == layout.RuntimeContainerd && s.BootID == o.BootID {
		removals = append(removals, Removal{Kind: RemoveNAT, Name: s.Plan.NATTable()})
	}
	for _, dir := range o.Cgroups {
		removals = append(removals, Removal{Kind: RemoveCgroup, Name: dir})
	}
	return removals
}

// planEnds lists the processes to end. Numbers in the state file mean nothing
// after a restart of the machine.
func planEnds(s layout.State, o Observed) []Removal {
	var removals []Removal
	killed := map[process.Process]bool{}
	end := func(kind RemovalKind, name string, p process.Process) {
		if !killed[p] {
			killed[p] = true
			removals = append(removals, Removal{Kind: kind, Name: name, Process: p})
		}
	}
	if s.BootID == o.BootID {
		for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
			if init := s.Nodes[name].Init; o.Alive[init] {
				end(RemoveProcess, name, init)
			}
		}
		// After the nodes: their agents keep a server from stopping.
		if o.Alive[s.Server] {
			end(RemoveServer, "server", s.Server)
		}
		for _, name := range slices.Sorted(maps.Keys(s.Others)) {
			if server := s.Others[name]; o.Alive[server] {
				end(RemoveServer, name, server)
			}
		}
	}
	for _, stray := range o.Strays {
		end(RemoveProcess, "stray", stray)
	}
	return removals
}

// planTakingBack lists what is undone on the machine itself, given the links of
// all clusters that it has: nothing as long as one of them is another's.
func planTakingBack(own string, links []string, changes machine.HostChanges) []Removal {
	if slices.ContainsFunc(links, func(link string) bool { return link != own }) {
		return nil
	}
	var removals []Removal
	if changes.Forwarding {
		removals = append(removals, Removal{Kind: RemoveForwarding, Name: "net.ipv4.ip_forward"})
	}
	for _, dir := range slices.Backward(changes.Dirs) {
		removals = append(removals, Removal{Kind: RemoveDir, Name: dir})
	}
	return removals
}
