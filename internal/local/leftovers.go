package local

import "slices"

// Observed is what the machine shows of a cluster, whatever its state file says.
type Observed struct {
	BootID string
	// Alive holds the processes of the state file that still run.
	Alive map[Process]bool
	// Strays are processes in the cluster's network namespaces: a node's
	// process 1, or what a person started there.
	Strays   []Process
	Netns    []string
	HostLink bool
	Cgroups  []string // folders, each with everything below it
	// OtherClusters says that this machine runs more than this one.
	OtherClusters bool
	// Host is what clusters changed on the machine for all of them.
	Host HostChanges
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
	Process Process
}

// planRemoval lists what must be removed so that nothing of a cluster is left
// but its data, in an order in which it can be: first the nodes with all their
// processes and mounts, then the server, then what these held.
//
// What serves other clusters too is left to them.
func planRemoval(s State, o Observed) []Removal {
	var removals []Removal
	sameBoot := s.BootID == o.BootID
	names := make([]string, 0, len(s.Nodes))
	for name := range s.Nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	killed := map[Process]bool{}
	if sameBoot {
		for _, name := range names {
			if init := s.Nodes[name].Init; o.Alive[init] {
				removals = append(removals, Removal{Kind: RemoveProcess, Name: name, Process: init})
				killed[init] = true
			}
		}
	}
	// After the nodes: their agents keep a server from stopping.
	if sameBoot && o.Alive[s.Server] {
		removals = append(removals, Removal{Kind: RemoveServer, Name: "server", Process: s.Server})
		killed[s.Server] = true
	}
	for _, stray := range o.Strays {
		if !killed[stray] {
			removals = append(removals, Removal{Kind: RemoveProcess, Name: "stray", Process: stray})
		}
	}
	if o.HostLink {
		removals = append(removals, Removal{Kind: RemoveHostLink, Name: s.Plan.HostLink()})
	}
	for _, name := range o.Netns {
		removals = append(removals, Removal{Kind: RemoveNetns, Name: name})
	}
	if s.Plan.Runtime == RuntimeContainerd && sameBoot {
		removals = append(removals, Removal{Kind: RemoveNAT, Name: s.Plan.NATTable()})
	}
	for _, dir := range o.Cgroups {
		removals = append(removals, Removal{Kind: RemoveCgroup, Name: dir})
	}
	if o.OtherClusters {
		return removals
	}
	if o.Host.Forwarding {
		removals = append(removals, Removal{Kind: RemoveForwarding, Name: "net.ipv4.ip_forward"})
	}
	for _, dir := range slices.Backward(o.Host.Dirs) {
		removals = append(removals, Removal{Kind: RemoveDir, Name: dir})
	}
	return removals
}
