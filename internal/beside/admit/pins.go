package admit

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/pinning"
)

// Pins returns the digests for a pod of a revision, by what the rollout says of images. First tells that nobody knows
// them yet, and that the pod is to ask a registry when it may. A template that is neither stable nor the target is as
// written.
func Pins(s *v1alpha1.DaemonSetRolloutStatus, revision string) (images []v1alpha1.PinnedImage, first bool) {
	if s.Images == nil {
		return nil, false
	}
	hash := content.TemplateOf(revision)
	if known := pinning.Of(s.Images, hash); known != nil {
		return known.Images, false
	}
	before, target := content.TemplateOf(s.StableRevision), content.TemplateOf(s.TargetRevision)
	return nil, hash != "" && (hash == before || hash == target)
}

// pins reports whether there is anything to fill in.
func (in *NewPod) pins() bool { return in.First || len(in.Images) > 0 }

// pin has a pod's specification name the digests of its template's images, or wait until it may ask for them.
func (in *NewPod) pin(spec object) (patch []step, err error) {
	if !in.pins() {
		return nil, nil
	}
	of, err := SpecOf(in.Revisions, content.TemplateOf(in.Want))
	if err != nil {
		return nil, fmt.Errorf("the revision whose images are pinned: %w", err)
	}
	changes, err := pinning.FillJSON(spec, of, in.Images, in.First)
	for _, c := range changes {
		patch = append(patch, step{"add", "/spec" + c.Path, c.Value})
	}
	return patch, err
}

// SpecOf is the specification in the pod template of the revision with the hash.
func SpecOf(revisions []*appsv1.ControllerRevision, hash string) (*corev1.PodSpec, error) {
	held, err := template(revisions, hash)
	if err != nil {
		return nil, err
	}
	var spec corev1.PodSpec
	err = into(held["spec"], &spec)
	if err != nil {
		return nil, fmt.Errorf("read a template: %w", err)
	}
	return &spec, nil
}
