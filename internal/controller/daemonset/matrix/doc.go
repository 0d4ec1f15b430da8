// Package matrix decides what a DaemonSet controller does next.
//
// It holds a sparse matrix: a row per DaemonSet, a column per Node, and a cell
// per pair that should have a pod or has one. Everything that a Matrix learns is an
// Event, taken in by Step: facts, the time, and what became of an action. Ready
// returns the actions to take now, each with its reason. The package does nothing
// itself: it has no clock, no lock, no goroutine, no log and no client. One
// goroutine owns a Matrix.
//
// A row knows nothing of other rows: the Matrix takes events to it. So a row can
// be copied and played forward (Fork).
//
// # Work per event
//
// Every input is level-triggered and idempotent: the same value twice is no
// work. A pod touches one cell, a heartbeat of a node none, a change of a node's
// labels or taints one cell per row, a change of a DaemonSet one cell per column
// of its row. Beyond that there are only logarithmic costs for ordered sets and
// timers. All totals (a row's status, its unavailable cells, its surging cells)
// are kept running: a cell's old contribution is taken off, its new one added.
//
// # The life of a cell
//
//	Idle -node fits-> Missing -CreatePod-> Creating -pod seen-> Progressing
//	Progressing -ready for minReadySeconds-> Available
//	Available -new revision-> Outdated (or OutdatedUnavailable)
//	Outdated -within maxUnavailable: DeletePod-> Terminating -pod gone-> Missing
//	Outdated -within maxSurge: CreatePod-> Surging -new pod available: DeletePod old-> Available
//	OutdatedUnavailable -DeletePod, or with surge CreatePod, at once-> ...
//	any -pod failed or succeeded-> Failed -back-off over: DeletePod-> Terminating
//	any -one pod too many-> Excess -DeletePod the younger-> ...
//	any -node no longer fits-> Misscheduled; it stays unless an untolerated
//	    NoExecute taint, the labels or the name forbid it: DeletePod-> Terminating -> Idle
//	any -Node object gone-> Stranded; unbound pods are deleted, bound ones are
//	    left to the pod garbage collector
//
// # Rules
//
//   - Order: rows by namespace, name and UID; within a row cells by node name.
//     The same inputs give the same actions.
//   - Without surge a cell gets a pod only when no other pod is left in it, save
//     one that is both finished and being deleted. So two daemons of a DaemonSet
//     never run on one node because of us.
//   - The budget (maxUnavailable, maxSurge) counts cells. A deletion counts from
//     the moment its action leaves Ready, so actions in flight are inside it.
//   - The conditions are part of the status. Their words come from the totals and
//     from the first cells of a group; a step that takes a moment changes none.
//   - A pod is up to date when it carries the row's revision, whoever made it.
//   - A cell with an action in flight waits for the pod's own event, for a failed
//     outcome, or for Config.ExpectationsTimeout; the other cells move on. A pod
//     that was created and is not seen for Config.SeenTimeout is created again
//     by the same name, which is harmless if it is there.
package matrix
