// Package simulator runs thousands of nodes in one process: to the API they are nodes like any other, but nothing runs
// on them. They register, renew their leases, take the pods bound to them and report them running; a pod that is
// deleted is gone at once.
//
//	nodes: nodes.go keeps the list   --due-->  worker: register, renew the lease, say Ready again
//	pods:  one informer for all --by spec.nodeName--> pods.go --pod UID--> worker: pod.step --> status or delete
//
// What a node does for a pod is decided by podworker, the state machine of the real agent; this package only stands in
// for the runtime (runtime.go): images are there, containers start at once, probes succeed. Nothing is kept on disk: a
// simulator that starts again finds its nodes in the API and the containers of its pods in their statuses.
//
// Nodes and pods can be ill: package illness decides how, and ill.go brings it about.
//
// A node does not check whether a pod fits; the scheduler did, and pods that name their node themselves are taken as
// they come.
package simulator
