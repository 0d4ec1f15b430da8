// Package queue decides which pod is scheduled next, and when one that could not be placed is tried again.
//
// A waiting pod is in one of three places:
//
//	         Add, new spec
//	              |
//	              v           Pop
//	+-------> active ------------------> (being scheduled)
//	|             ^                        |            |
//	| back-off    | back-off over          | Retry      | Park
//	| over        |                        v            v
//	+--------- back-off <----------------- . <---- unschedulable
//	                      a change that may help, or 5 minutes
//
// Postpone puts a pod into back-off until a time that is given, and counts no attempt.
//
// Active pods leave by priority, then by the time they came in. Each failed attempt doubles the back-off, 1 s to 10 s.
// A parked pod names the changes that may help it and, if it can only run on certain nodes, those nodes: a change on
// another node then costs it nothing, so a thousand parked daemon pods make a node event no dearer.
//
// The package is pure: time is an argument, one goroutine owns a Queue.
package queue
