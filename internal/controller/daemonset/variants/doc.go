// Package variants decides which variants each DaemonSet has, and which revision a node's pod is of by them.
//
// A Book stands before the matrix. It adds the variants of a DaemonSet to the name and the digest of its newest
// revision, and says of each pod which revision it is as good as: a pod that would be the same by the newest variants
// has the newest revision, and is not touched. What asks from the other side hears of revisions without variants. Of a
// DaemonSet that has no variants everything goes through as it is.
//
// The variants of a revision are stored before the first pod is made by them, as a ControllerRevision that belongs to
// nobody's history, so that the way back stays open. Jobs returns what is to be stored and deleted now.
//
// It is pure: no clock, lock, goroutine, log or client. One goroutine owns a Book.
package variants
