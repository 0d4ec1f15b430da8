// Package podspec knows what a pod's specification means to the API: which
// values stand for the fields a user left out, and which specifications are
// refused, with the texts that Kubernetes users know.
//
// It serves pods and every kind that carries a pod template. Everything here
// is a pure function of its arguments. Defaults change the object in place;
// validation never does, and expects defaults to have been applied.
//
//	defaults    the values of fields left out
//	check       what several checks share: names, paths, closed sets
//	placement   affinity, tolerations and topology spread
//	warnings    what is accepted, and yet worth a word
//	references  which objects a pod refers to
//
// The package itself checks a whole specification (spec.go), one file for each part.
package podspec
