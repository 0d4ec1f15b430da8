// Package volumes knows which volumes there are, which claims have one, and which one a claim can have on a node.
// Claims that wait for their first pod get a volume with the pod's node; what was given to a claim and is not yet seen
// so in the API is promised. It also knows the disks of the network that pods name themselves.
//
// It is pure: no clock, lock or client.
package volumes
