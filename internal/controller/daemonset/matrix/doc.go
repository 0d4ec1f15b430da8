// Package matrix decides what a DaemonSet controller does next.
//
// It holds a sparse matrix: a row per DaemonSet, a column per Node, and a cell
// per pair that should have a pod or has one. Everything that a Matrix learns is an
// Event, taken in by Step: facts, the time, and what became of an action. Ready
// returns the actions to take now, each with its reason. The package does nothing
// itself: it has no clock, no lock, no goroutine, no log and no client. One
// goroutine owns a Matrix.
//
// Package fact has what a Matrix is told, package action what it asks for, package row what follows for one
// DaemonSet. A row knows nothing of other rows: the Matrix tells it of events through one door, Row.Step. In its turn
// the row returns what it does, and how much of the pace that it shares it has used.
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
