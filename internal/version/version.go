// Package version tells which Everynode this is. The values are set by the
// linker; see the Makefile.
package version

import "k8s.io/component-base/version"

// Version is Everynode's own version.
var Version = "devel"

// Kubernetes is the version of the API that is served, such as v1.37.2.
func Kubernetes() string { return version.Get().GitVersion }
