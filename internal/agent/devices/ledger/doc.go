// Package ledger keeps the books of a node's devices: which device plugins list, which are healthy, and which container
// of which pod has which. It is pure: the time and what plugins say come in; what a container may have, or why it may
// not, goes out.
//
// A device belongs to one pod at a time. Inside a pod, what an init container had is had again by the containers after
// it; what a sidecar has is its own, because it runs on beside them. A resource whose plugin went away keeps its amount
// for a grace period, with nothing of it to be had, and has none after that. The books survive their plugins: what a
// pod has it keeps until it is freed.
package ledger
