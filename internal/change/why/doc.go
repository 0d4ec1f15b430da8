// Package why writes down why each node is where it is: for one node, each DaemonSet's verdict with all reasons; for
// one DaemonSet, its nodes grouped by verdict. It is pure: a survey goes in, a report comes out, as text for people or
// as JSON.
//
// The lines around the reasons are written here. The reasons come through package survey (standing.go), in this order:
//
//	course/standing/why.go   what the rollout makes of the node (both in the DaemonSet controller)
//	matrix/row/because.go    why nothing is done, where there is no policy
//	node/fault.go            what is wrong with the node
//	objects/pod/trouble.go   what is wrong with the pod: images that cannot be pulled, crashes
//	fit                      why the pod has no room
package why
