// Package dns is the name server of a node: it answers the node's pods at the
// cluster's DNS address, from the Services, EndpointSlices and Namespaces that the
// node has watched, and asks the node's own name servers for all other names.
//
//	zone/     pure: question and objects -> answer
//	source    finds the objects in the node's caches, or in what the node knew before
//	memory    which of the two
//	handler   who answers: the zone, or somebody outside
//	upstream  the node's own name servers, through CoreDNS's forward and cache
//	loop      finds those of them that ask this one back
//	server    listens
//
// When the control plane is down it answers from what it knows, and after a restart
// from what it is told that the node knew.
package dns
