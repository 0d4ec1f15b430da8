package volume

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
)

// Unfit says why a volume that a claim asks for by name is not good for it, "" if it is.
func Unfit(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) string {
	switch {
	case v.DeletionTimestamp != nil:
		return fmt.Sprintf("the volume is marked for deletion %q", v.Name)
	case tooSmall(v, c):
		return "requested PV is too small"
	case Class(v) != ClaimClass(c):
		return "storageClassName does not match"
	case ptr.Deref(v.Spec.VolumeAttributesClassName, "") != ptr.Deref(c.Spec.VolumeAttributesClassName, ""):
		return "volumeAttributesClassName does not match"
	case Mode(v.Spec.VolumeMode) != Mode(c.Spec.VolumeMode):
		return "incompatible volumeMode"
	case !offers(v, c):
		return "incompatible accessMode"
	}
	return ""
}

func tooSmall(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	return v.Spec.Capacity.Storage().Cmp(*c.Spec.Resources.Requests.Storage()) < 0
}

// offers says whether the volume has all access modes that the claim wants.
func offers(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	for _, mode := range c.Spec.AccessModes {
		if !slices.Contains(v.Spec.AccessModes, mode) {
			return false
		}
	}
	return true
}

// Wanted is a claim that looks for a volume.
type Wanted struct {
	claim    *corev1.PersistentVolumeClaim
	selector labels.Selector
}

// Want prepares the search for a claim's volume. A selector that cannot be read matches no volume.
func Want(c *corev1.PersistentVolumeClaim) Wanted {
	w := Wanted{claim: c, selector: labels.Everything()}
	if c.Spec.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(c.Spec.Selector)
		if err != nil {
			selector = labels.Nothing()
		}
		w.selector = selector
	}
	return w
}

// Takes says whether a volume that nobody has is good for the claim.
func (w Wanted) Takes(v *corev1.PersistentVolume) bool {
	return v.Spec.ClaimRef == nil && v.Status.Phase == corev1.VolumeAvailable && Unfit(v, w.claim) == "" &&
		w.selector.Matches(labels.Set(v.Labels))
}

// Reserved returns the volume that is kept for the claim, if it is of the right size and mode, of several the first by
// name; nil if there is none.
func (w Wanted) Reserved(volumes []*corev1.PersistentVolume) (kept *corev1.PersistentVolume) {
	for _, v := range volumes {
		if (kept == nil || v.Name < kept.Name) && IsFor(v, w.claim) && v.DeletionTimestamp == nil && !tooSmall(v, w.claim) &&
			Mode(v.Spec.VolumeMode) == Mode(w.claim.Spec.VolumeMode) &&
			ptr.Deref(v.Spec.VolumeAttributesClassName, "") == ptr.Deref(w.claim.Spec.VolumeAttributesClassName, "") {
			kept = v
		}
	}
	return kept
}

// Ranked returns the volumes that take the claim, those first that waste the least.
func (w Wanted) Ranked(volumes []*corev1.PersistentVolume) (good []*corev1.PersistentVolume) {
	for _, v := range volumes {
		if w.Takes(v) {
			good = append(good, v)
		}
	}
	slices.SortFunc(good, wastes)
	return good
}

// Best returns the volume that wastes the least for the claim: of those that take it the one with the fewest access
// modes, of these the smallest, of these the first by name; nil if none takes it.
func (w Wanted) Best(volumes []*corev1.PersistentVolume,
	allowed func(*corev1.PersistentVolume) bool) (best *corev1.PersistentVolume) {
	for _, v := range volumes {
		if (best == nil || wastes(v, best) < 0) && w.Takes(v) && allowed(v) {
			best = v
		}
	}
	return best
}

func wastes(a, b *corev1.PersistentVolume) int {
	return cmp.Or(
		cmp.Compare(len(a.Spec.AccessModes), len(b.Spec.AccessModes)),
		a.Spec.Capacity.Storage().Cmp(*b.Spec.Capacity.Storage()),
		cmp.Compare(a.Name, b.Name),
	)
}

// Reaches says whether a volume can be used on a node with that name and these labels.
func Reaches(v *corev1.PersistentVolume, name string, nodeLabels map[string]string) bool {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return true
	}
	if host := OnlyHost(v); host != "" && nodeLabels[corev1.LabelHostname] != host {
		return false // a local volume is asked about for every node
	}
	selector, err := nodeaffinity.NewNodeSelector(v.Spec.NodeAffinity.Required)
	if err != nil {
		return false
	}
	node := &corev1.Node{}
	node.Name, node.Labels = name, nodeLabels
	return selector.Match(node)
}

// OnlyHost is the value of the host name label that a node must have for the volume, "" if the volume does not ask for
// one alone, as local volumes do.
func OnlyHost(v *corev1.PersistentVolume) string {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil ||
		len(v.Spec.NodeAffinity.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, e := range v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions {
		if e.Key == corev1.LabelHostname && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
			return e.Values[0]
		}
	}
	return ""
}
