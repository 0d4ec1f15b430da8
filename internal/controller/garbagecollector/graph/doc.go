// Package graph decides what garbage collection has to do.
//
// It holds one node per object of the cluster and an edge for every owner
// reference. Its owner feeds it what informers and live reads say (Observe,
// Remove, ConfirmAbsent), takes from Ready the objects that may need work, and
// asks Decide what that work is at this moment.
//
// A node is in one of three states:
//
//	virtual  --Observe-->  observed  --Remove-->  gone
//
// A virtual node is known only from references to it; before anything is
// deleted because of it, a live read must prove that it does not exist. A gone
// node stays as long as something refers to it, and is the memory that its
// dependents need no live read of their own.
//
// References may disagree about the coordinates (kind, namespace, name) that go
// with one UID. Absence is therefore kept per coordinates: that v1/Secret/x with
// UID 1 does not exist says nothing about a ConfigMap with UID 1.
//
// The package is pure: no clock, no lock, no goroutine, no client. One owner at a
// time may call a Graph. The order in which kinds' events arrive does not matter.
package graph
