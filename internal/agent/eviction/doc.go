// Package eviction decides which pods a node ends because it runs short of something, or because a pod took more than
// its share of the disk. It is pure: what was measured comes in, what to end and what to say about it goes out.
//
// A threshold names a signal and what must be left of it. When less is left, the node is under pressure: it frees what
// nobody uses, and if that is not enough it ends one pod, looks again, and so on. The pod that goes first is one that
// uses more than it requested; among those, the one of lowest priority; among those, the one furthest above its
// request.
package eviction
