// Package queue keeps which nodes of a rollout may be changed next: by step, and within it by the domains that limit
// how many nodes of a rack or a zone may be down. It counts the nodes of each by what they count as.
//
// What changes about one node costs a logarithm of the fleet's size: a domain that fills closes one line of groups in
// each step, however many nodes wait in it.
package queue
