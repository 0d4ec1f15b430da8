// Package pinning knows what the tags of a template's images are resolved to in its pods: which images a registry is
// asked about, how a pod's spec comes to name their digests, and what a pod's status tells of them. It is pure.
//
// Where Everynode makes the pods, the first one of a template is made alone. Beside another DaemonSet controller, which
// makes as many as it likes, each that is to ask a registry is made behind a scheduling gate, and one at a time is let
// through.
package pinning
