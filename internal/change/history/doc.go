// Package history decides about the ControllerRevisions of a DaemonSet or a StatefulSet: which
// one holds its present template, whether one must be made or get a new number,
// which are duplicates and which may go. It reads nothing but its arguments and
// writes nothing.
//
// A revision holds a template as the patch that `rollout undo` sends:
//
//	{"spec":{"template":{"$patch":"replace","metadata":{...},"spec":{...}}}}
//
// Its name is the owner's name and a hash of the template. Pods carry the hash as
// label controller-revision-hash, those of StatefulSets the name, and a pod is up to
// date when it is the current revision's.
//
// Invariants of a plan:
//
//   - Two templates that mean the same are the same revision, whatever the order
//     of their fields and whether something is left out or spelled as its empty
//     value. With several such revisions the one with the highest number stays.
//   - The current revision has the highest number. Going back to an older
//     template raises that revision's number and keeps its name and hash, so pods
//     that still carry the hash are up to date at once.
//   - A revision that some pod carries is never cleaned up.
package history
