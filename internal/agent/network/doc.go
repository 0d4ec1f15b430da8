// Package network connects a node's pods: to each other by a bridge on the node,
// to other nodes' pods by routes through those nodes' addresses, and to what is
// outside the cluster under the node's own address.
//
// It watches the nodes. From its own one it takes the pod network, for which it
// writes the CNI configuration that the container runtime uses; for every other
// one it keeps a route. Pods and nodes reach each other unmasqueraded.
//
//	peers     pure: what nodes say -> routes and networks, one node at a time
//	cniconf   pure: pod network -> CNI configuration
//	ruleset   pure: networks -> packet filter rules
//	kernel    applies; network.go runs it
//
// The nodes must be on one network link, for a route's next hop is a node.
package network
