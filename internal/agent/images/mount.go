package images

import (
	"fmt"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// firstWithImages is from which version on runtimes mount images. Earlier ones would mount nothing, or fail without
// saying why.
var firstWithImages = map[string]string{"containerd": "2.1.0", "cri-o": "1.31.0"}

// MountedBy says why a runtime cannot mount images as volumes; nil if it can, or if nobody knows.
func MountedBy(name, version string) error {
	first, known := firstWithImages[name]
	if !known {
		return nil
	}
	have, err := utilversion.ParseGeneric(version)
	if err != nil || have.AtLeast(utilversion.MustParseGeneric(first)) {
		return nil //nolint:nilerr // a version that nobody can read may be a good one
	}
	return fmt.Errorf("image volumes need %s %s or newer, and this node has %s", name, first, version)
}
