// Package podspec knows what a pod's specification means to the API: which
// values stand for the fields a user left out, and which specifications are
// refused, with the texts that Kubernetes users know.
//
// It serves pods and every kind that carries a pod template. Everything here
// is a pure function of its arguments. Defaults change the object in place;
// validation never does, and expects defaults to have been applied.
//
//	defaults*.go       the values of fields left out
//	spec.go            the order in which a whole specification is checked
//	one file per part  containers, ports, env, resources, probes, volumes ...
//	update.go          what may change in a pod that exists
package podspec
