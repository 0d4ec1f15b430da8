// Package cache keeps, for every node, the sums that decide whether another pod fits: what the node offers, what its
// pods ask for, which host ports are taken and how many pods of each controller run there.
//
// It is incremental: an event costs the pod or node it is about, never a walk over the others. It is pure: no clock,
// lock or client; one goroutine owns a Cache. Events may come in any order (a pod before its node, a node deleted
// before its pods); the sums depend only on the latest state of each object.
//
// A pod that was given a node but whose binding is not yet seen in the API is assumed: it counts like a bound one
// until it is confirmed by SetPod, moved by SetPod, or taken back by Forget or DeletePod.
package cache
