package nodeauth

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/everynode/everynode/internal/apiserver/podspec"
	podfacts "github.com/everynode/everynode/internal/pod"
	"github.com/everynode/everynode/internal/volume"
)

// reference names an object that a pod uses.
type reference struct {
	resource, namespace, name string
}

const podsResource = "pods"

// used reports whether one of the pods uses the object, or is it.
func used(pods []corev1.Pod, ref reference) bool {
	for i := range pods {
		if p := &pods[i]; p.Namespace == ref.namespace && uses(p, ref) {
			return true
		}
	}
	return false
}

func uses(p *corev1.Pod, ref reference) bool {
	if ref.resource == podsResource {
		return p.Name == ref.name
	}
	if podfacts.IsMirror(p) {
		return false // The node itself wrote it: it must not open anything.
	}
	if ref.resource == claimResource.Resource {
		return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return volume.ClaimName(p.Name, &v) == ref.name })
	}
	if ref.resource == resourceClaimResource.Resource {
		for name := range resourceclaim.PodClaims(p) {
			if name == ref.name {
				return true
			}
		}
		return false
	}
	found := false
	podspec.References(&p.Spec, func(resource, name string) { found = found || resource == ref.resource && name == ref.name })
	return found
}
