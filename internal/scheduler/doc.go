// Package scheduler gives every pod that asks for the scheduler "default-scheduler" and has no node a node.
//
//	informers -> inbox -> loop --pod--> placement --node--> assume in cache -> binder workers -> API
//	                       ^   \--nothing fits--> preempt, park in queue   -> status, event     |
//	                       +--------------------- outcome of a binding -------------------------+
//
// One goroutine (loop.go) owns the queue, the cache and the placement and decides alone; workers (binder.go) write, and
// are the only ones that do. A pod counts on its node from the moment it is assumed, so the loop never waits for the API
// server. What happened to a binding comes back through the inbox like every other event.
//
// The rules are listed in registry.go; each is a folder below plugins.
package scheduler
