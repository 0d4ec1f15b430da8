package volumes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/objects/volume"
)

// What a node is reported with that cannot have a pod because of its volumes.
const (
	TextElsewhere   = "node(s) didn't match PersistentVolume's node affinity"
	TextNone        = "node(s) didn't find available persistent volumes to bind"
	TextGone        = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
	TextClaimShared = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
	// Unbound is about the pod, whatever the node.
	Unbound = "pod has unbound immediate PersistentVolumeClaims"
)

// Claim is one of a pod's claims.
type Claim struct {
	name string
	// own says that it was made for an ephemeral volume of the pod.
	own bool
}

// Claims lists those that a pod has its volumes from.
func Claims(object *corev1.Pod) (out []Claim) {
	for i := range object.Spec.Volumes {
		v := &object.Spec.Volumes[i]
		if name := volume.ClaimName(object.Name, v); name != "" {
			out = append(out, Claim{name, v.Ephemeral != nil})
		}
	}
	return out
}

// Pod is a pod that has volumes by claims.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	Claims          []Claim
}

// ClaimKeys are the pod's claims, as namespace/name.
func (p Pod) ClaimKeys() (out []string) {
	for _, c := range p.Claims {
		out = append(out, p.Namespace+"/"+c.name)
	}
	return out
}

// Claimed is what a pod asks of its node by its claims.
type Claimed struct {
	// Problem is why the pod fits nowhere as its claims are; "" if that is not so.
	Problem string
	// Alone are the claims, as namespace/name, that no other pod may use.
	Alone []string
	bound []*corev1.PersistentVolumeClaim
	open  []open
}

// open is a claim that gets its volume with the pod's node. What is the same for all nodes is found out once.
type open struct {
	*corev1.PersistentVolumeClaim
	key  string
	want volume.Wanted
	// kept is the volume that is kept for it; nil for none. Otherwise wide are those that it may get and that are not
	// for one host alone, the
	// best first.
	kept *corev1.PersistentVolume
	wide []*corev1.PersistentVolume
}

// Look sorts a pod's claims by what is known of them. Of nil, which knows none, the pod asks nothing.
func (s *Storage) Look(pod Pod) *Claimed {
	out := &Claimed{}
	if s == nil {
		return out
	}
	waits := false
	for _, wanted := range pod.Claims {
		key := pod.Namespace + "/" + wanted.name
		c := s.claims[key]
		if problem := unusable(pod, wanted, c); problem != "" {
			return &Claimed{Problem: problem}
		}
		if slices.Contains(c.Spec.AccessModes, corev1.ReadWriteOncePod) {
			out.Alone = append(out.Alone, key)
		}
		switch {
		case volume.Bound(c):
			out.bound = append(out.bound, c)
		case c.Spec.VolumeName == "" && volume.Waits(s.classes[volume.ClaimClass(c)]):
			out.open = append(out.open, s.open(c))
		default:
			waits = true
		}
	}
	if waits {
		out.Problem = Unbound
	}
	return out
}

func (s *Storage) open(c *corev1.PersistentVolumeClaim) open {
	out := open{PersistentVolumeClaim: c, key: c.Namespace + "/" + c.Name, want: volume.Want(c)}
	out.kept = out.want.Reserved(listed(s.reserved[out.key]))
	if out.kept == nil {
		out.wide = out.want.Ranked(listed(s.free[pool{volume.ClaimClass(c), ""}]))
	}
	return out
}

// unusable says why a claim is of no use to a pod.
func unusable(pod Pod, wanted Claim, c *corev1.PersistentVolumeClaim) string {
	switch {
	case c == nil && wanted.own:
		return fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q",
			wanted.name)
	case c == nil:
		return fmt.Sprintf("persistentvolumeclaim %q not found", wanted.name)
	case wanted.own && !metav1.IsControlledBy(c, &metav1.ObjectMeta{UID: pod.UID}):
		return fmt.Sprintf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", c.Namespace, c.Name,
			pod.Namespace, pod.Name)
	case c.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", c.Name,
			c.Spec.VolumeName)
	case c.DeletionTimestamp != nil:
		return fmt.Sprintf("persistentvolumeclaim %q is being deleted", c.Name)
	}
	return ""
}
