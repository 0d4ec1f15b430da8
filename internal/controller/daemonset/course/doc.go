// Package course decides how the change of one DaemonSet under a RolloutPolicy travels over the nodes: which revision
// each node is to have, which node may be changed now, whose fault it is when a daemon does not come up, and when a
// change stops or goes back.
//
// A Course is told facts: the DaemonSet's newest revision, the policy, what people wrote into the rollout, nodes, what
// became of the daemon on each of them, and the time. Placement rules are among these facts, as values that never
// change: a course asks nobody back. Asked, it says each node's target (Target), takes nodes that may be changed now
// (Take), and tells where the rollout is (Status, Verdict). It is pure: no clock, no lock, no goroutine, no log, no
// client.
//
// # What is stored and what is computed
//
// The rollout's status holds the stable and the target revision, the number of the change, by which it is approved,
// the furthest step that has begun, and the evidence of failures. A node's target is never stored: the nodes of steps
// that have begun have the target revision, all others the stable one. So a node that joins, restarts or loses its pod
// in the middle gets what is its own at that moment, and a rollback needs to move one line only.
//
//	step     canary | zones/a | zones/b | zones/c | rest
//	         ------ begun ----|-------- not yet ---------
//	target   newest  newest     stable    stable    stable
//
// # Phases
//
//	Progressing -all nodes of the step have the target-> Soaking
//	Soaking -each has been available for long enough-> (approval?) -> next step
//	last step -> Complete: the target is the stable revision from then on
//	any -too many nodes failed-> Halted, or RolledBack: all targets are stable
//	any -somebody pauses, no policy can be followed-> Paused
//
// # What may begin
//
// A node's change begins only in Progressing, inside a window, at the policy's pace, while not too many nodes are out
// of order by themselves, and while neither the limit of its step nor that of any of its domains is used up. The limit
// of a step counts what the rollout has made unavailable; that of a domain also what is down there anyway, so that a
// rack with a dead node gets no second one. Nodes that wait for nothing but the dead ones of their domain do not hold
// up the next step. A daemon that is not available anyway is replaced without asking the limits: at once if it is in
// trouble, and else after half a minute.
//
// # Work
//
// A fact about one node costs a logarithm of the fleet's size: a domain that fills closes one line of groups in each
// step. A new target, a step that begins, a rollback, and a domain in which nodes that stay down use up the limit,
// look at every node they concern, once.
package course
