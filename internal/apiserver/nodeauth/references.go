package nodeauth

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/everynode/everynode/internal/apiserver/podspec/references"
	"github.com/everynode/everynode/internal/change/content"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
	"github.com/everynode/everynode/internal/objects/volume"
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
		return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return volume.ClaimName(p.Name, &v) == ref.name
		})
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
	references.Of(&p.Spec, func(resource, name string) { found = found || resource == ref.resource && name == ref.name })
	return found || pointsAt(p, ref)
}

// pointsAt reports whether the volumes of a running pod show the object in place of one that its spec names. Only
// the DaemonSet controller says so; what was written before a server kept others from that opens nothing but copies
// of what the spec names.
func pointsAt(p *corev1.Pod, ref reference) bool {
	if p.Annotations[content.LiveName] == "" {
		return false
	}
	_, to, err := content.Shown(p)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(to.Volumes, func(v content.Pointed) bool {
		return v.Copy == ref.name && (v.Kind == content.ConfigMap && ref.resource == "configmaps" ||
			v.Kind == content.Secret && ref.resource == "secrets")
	})
}
