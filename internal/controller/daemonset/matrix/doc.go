// Package matrix decides what a DaemonSet controller does next.
//
// It holds a sparse matrix: a row per DaemonSet, a column per Node, and a cell
// per pair that should have a pod or has one. Everything that a Matrix learns is an
// Event, taken in by Step: facts, the time, and what became of an action. Ready
// returns the actions to take now, each with its reason. The package does nothing
// itself: it has no clock, no lock, no goroutine, no log and no client. One
// goroutine owns a Matrix.
//
// A row knows nothing of other rows: the Matrix tells it of events through one door, row.step. In its turn the
// row returns what it does, and how much of the pace that it shares it has used. Within a row an event goes one
// way: what is known of its cell, told to the row's course if it follows a policy, then the cell is judged,
// once, and with it the cells whose order the course has changed.
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
// # What a cell wants
//
// A cell is judged again after anything about it changed, and sorted by one thing: what it
// wants done. A row keeps the cells that want the same in order.
//
//	remove    delete pods now
//	sunset    delete the old pod once enough others are available
//	create    make a pod now
//	replace   delete the old pod when maxUnavailable allows
//	surge     make a second pod when maxSurge allows
//	nothing   it is as it should be, or a Because says why nothing is done
//
// The life of a cell:
//
//	no pod, node fits -create-> on its way -ready for minReadySeconds-> available
//	available, new revision -replace-> going -gone-> no pod
//	available, new revision -surge-> two pods -new one available: remove-> available
//	not available, new revision -remove, or with surge create-> ...
//	any, a pod failed or succeeded -back-off over: remove-> ...
//	any, a pod too many -remove the younger-> ...
//	any, node no longer fits: stays unless an untolerated NoExecute taint, the
//	    labels or the name forbid it -remove-> going -> no pod, and none wanted
//	any, Node object gone -remove what is unbound-> what is bound is left to the
//	    pod garbage collector
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
