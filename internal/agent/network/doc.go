// Package network connects a node's pods: to each other by a bridge on the node,
// to other nodes' pods by paths to those nodes, and to what is outside the cluster
// under the node's own address.
//
// It watches the nodes. From its own one it takes the pod network, for which it
// writes the CNI configuration that the container runtime uses; to every other
// one's it keeps a path. A path is a route whose next hop is the other node (host
// gateway) where that is on a link of this machine, else a VXLAN tunnel. Pods and
// nodes reach each other unmasqueraded.
//
//	bounds    pure: which networks and addresses nodes may claim
//	peers     pure: what nodes say -> paths and networks, one node at a time
//	ways      pure: the machine's own routes -> which nodes are on its links
//	cniconf   pod network -> CNI configuration
//	ruleset   pure: networks -> packet filter rules
//	kernel    applies, tunnel what concerns tunnels; network.go runs it
//	leave     takes everything back
//	address   addresses at which every node answers by itself
package network
