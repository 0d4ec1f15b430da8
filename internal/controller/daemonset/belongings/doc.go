// Package belongings decides what belongs to which DaemonSet: which revision is
// its current one, which pods and revisions it takes and lets go, and which old
// revisions go. What follows for its pods it tells a matrix.
//
// Everything that a Book learns is an Event, taken in by Step: objects as they are
// now or gone, the time, and what became of a job. Jobs returns what is to be
// written now, each with the DaemonSet it is for. It has no clock, lock, goroutine,
// log or client. One goroutine owns a Book. Objects are shared with whoever told of
// them, and are not changed.
//
// Rules:
//
//   - Pods are held back only while the hash of the newest template is not known,
//     or while pods get the hash of another revision.
//   - Of each kind of job (revisions, cleaning up, claims) a DaemonSet has one under
//     way; after a failure the next one waits, and nothing else waits for it.
//   - An orphan goes to the first DaemonSet, by name, that would take it, and fills
//     its place from the moment it is seen.
//   - While revisions are written, one that merely appears is our own doing.
package belongings
