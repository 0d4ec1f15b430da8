// Package dashboard shows a cluster as a page in a browser on the same machine. The page
// sees what the caller's kubeconfig may see, and does what it may do.
//
//	watch.go: informers --survey--> stream.go: maps and changes, line by line --> page
//	                            '-> detail.go: a node, revisions, events, logs, plans
//	                                act.go:    approve, pause, resume, retry, abort, undo
//
// The server listens on loopback only. guard.go decides which requests are answered: those
// with this run's key, from this page.
package dashboard
