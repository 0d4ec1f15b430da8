// Package podadmission decides whether a node takes a pod that is bound to it, and whether one that it has can have
// more CPU and memory. It is pure.
//
// The scheduler made sure that a pod fits, but not for pods that name their node themselves, nor against what it did
// not know yet. Room and ports are reckoned as the scheduler does, by internal/fit.
package podadmission
