package pins

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/pinning"
)

// unpinned names the images of a template that are taken as written, and says why; "" if none is. Template is nil
// while it cannot be read.
func unpinned(template *corev1.PodSpec, t v1alpha1.PinnedTemplate) string {
	var tags, missing, ofContainers, ofVolumes []string
	volumes := map[string]bool{}
	if template != nil {
		tags, volumes = pinning.Tags(template), pinning.VolumesOnly(template)
	}
	for _, i := range t.Images {
		switch {
		case i.Digest != "":
		case volumes[i.Image]:
			ofVolumes = append(ofVolumes, i.Image)
		default:
			ofContainers = append(ofContainers, i.Image)
		}
	}
	for _, image := range tags {
		if !slices.ContainsFunc(t.Images, func(i v1alpha1.PinnedImage) bool { return i.Image == image }) {
			missing = append(missing, image)
		}
	}
	var out []string
	for _, of := range []struct {
		images []string
		why    string
	}{
		{ofContainers, "%s " + pinning.AsWritten + ": %s knows no digest of its repository"},
		{ofVolumes, "%s, of a volume, " + pinning.AsWritten + ": %s does not say the digest that it got"},
		{missing, "%s " + pinning.AsWritten + ": nobody asked %s for its digest. kubectl rollout restart does"},
	} {
		if len(of.images) > 0 {
			out = append(out, fmt.Sprintf(of.why, strings.Join(of.images, ", "), t.Node))
		}
	}
	return strings.Join(out, "; ")
}
