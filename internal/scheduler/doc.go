// Package scheduler gives every pod that asks for the scheduler "default-scheduler" and has no node a node.
//
//	informers -> inbox -> loop --pod--> placement --node--> assume in cluster -> binder workers -> API
//	                       ^   \--nothing fits--> preempt, park in queue   -> status, event     |
//	                       +--------------------- outcome of a binding -------------------------+
//
// One goroutine (loop.go) owns the queue, the cluster and the placement and decides alone; workers (binder.go) write,
// and are the only ones that do. A pod counts on its node from the moment it is assumed, so the loop never waits for
// the API server. What happened to a binding comes back through the inbox like every other event.
//
// Which nodes fit is decided by the rules of package fit, which is best by those of package score.
package scheduler
