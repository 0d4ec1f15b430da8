// Package networkapi tells nodes of each other what their networks need: addresses and
// pod networks (package peer), and nothing else of a Node. One reader follows the Nodes
// in the server's own storage; a pure journal keeps the nodes and their last changes as
// they are sent; and each watch is a goroutine with a place in the journal.
package networkapi
