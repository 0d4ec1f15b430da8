// Package local runs a whole cluster on this machine: the control plane in one
// process and, for every node, real namespaces with a containerd and an agent.
//
//	host                                     everynode up (the supervisor)
//	 |- everynode server                     127.0.0.1:6443 and 10.x.y.254:6443
//	 |- evnID, 10.x.y.254/24 ---+
//	 |                          | veth
//	 |   netns everynode-ID     +- br0 -+---------+---------+
//	 |                                  |         |         |   veth pairs
//	 |   netns everynode-ID-node-1     eth0     (eth0)    (eth0)
//	 '--- node-1: own network, mount, process, host name and IPC namespaces
//	        pause (process 1)  containerd  everynode agent  the pods
//	        /run: a tmpfs;  /var/log, /var/lib, /etc/cni: DATA/nodes/node-1/...
//	        /opt/cni/bin: the machine's CNI plugins, and those that network daemons add
//
// Several servers are in namespaces of their own, everynode-ID-server-1 and so on, plugged
// into the bridge too. The supervisor listens where one alone would, and passes each
// connection on to a server that is ready. Where nodes are simulated nothing needs root,
// and the servers are at addresses of the loopback interface.
//
// DATA/registries is in every node too, read-only: containerd reads a registry's
// HOST/hosts.toml there at each pull, so users change it without restarting.
//
// Everything below a node's process 1 ends with it, its mounts with its mount
// namespace, its links with its network namespace: stopping a node is one kill.
// The bridge has its own namespace so that the host's packet filter, which may
// drop what is bridged or forwarded, is not in the way.
//
// Names derive from ID, a hash of the data dir, so clusters with other data
// dirs run side by side. DATA/local.json tells what exists; it is written before
// and after each step, so after a crash at any moment the next up or down
// finds, and removes, what is left. A process is only ever signalled when its
// number and its start time are those that were written down.
//
// Its rooms: layout decides what there is; machine knows what this machine has; network, nodeinit, process and remains
// act on the kernel; gate leads to the servers; progress says how far it is. The package itself keeps the processes
// running (cluster, servers, node, resize, ready), and has the verbs (up, down, image).
package local
