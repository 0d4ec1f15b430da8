package volumes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/objects/volume"
)

// Node is a node that may have the pod.
type Node struct {
	Name   string
	Labels map[string]string
}

// Use is a claim that is to get its volume because a pod that uses it gets its node.
type Use struct {
	Claim *corev1.PersistentVolumeClaim
	// Volume is the one that it gets; nil if somebody is to make one.
	Volume *corev1.PersistentVolume
}

// OutOfReach says which volume that a claim is bound to cannot be had on the node, and in which words; "" if all can.
func (s *Storage) OutOfReach(of *Claimed, node Node) (text, name string) {
	for _, bound := range of.bound {
		v := s.volumes[bound.Spec.VolumeName]
		if v == nil {
			return TextGone, bound.Spec.VolumeName
		}
		if !volume.Reaches(v, node.Name, node.Labels) {
			return TextElsewhere, v.Name
		}
	}
	return "", ""
}

// Choose finds volumes for the claims on a node, each for one claim; missing is a claim that gets none.
func (s *Storage) Choose(of *Claimed, node Node) (uses []Use, missing string) {
	if len(of.open) == 0 {
		return nil, ""
	}
	taken := map[string]bool{}
	for _, c := range of.open {
		v, found := s.chooseOne(c, node, taken)
		if !found {
			return nil, c.Name
		}
		if v != nil {
			taken[v.Name] = true
		}
		uses = append(uses, Use{c.PersistentVolumeClaim, v})
	}
	return uses, ""
}

// chooseOne finds the volume for one claim. That there is none and found is true says that somebody makes one.
func (s *Storage) chooseOne(c open, node Node, taken map[string]bool) (v *corev1.PersistentVolume, found bool) {
	if selected, is := c.Annotations[volume.SelectedNode]; is && selected != node.Name {
		return nil, false
	}
	if c.kept != nil {
		return c.kept, volume.Reaches(c.kept, node.Name, node.Labels)
	}
	mine := func(v *corev1.PersistentVolume) bool {
		other, promised := s.promised[v.Name]
		return !taken[v.Name] && (!promised || other == c.key) && volume.Reaches(v, node.Name, node.Labels)
	}
	class := volume.ClaimClass(c.PersistentVolumeClaim)
	var candidates []*corev1.PersistentVolume
	if host := node.Labels[corev1.LabelHostname]; host != "" {
		candidates = listed(s.free[pool{class, host}])
	}
	if i := slices.IndexFunc(c.wide, mine); i >= 0 {
		candidates = append(candidates, c.wide[i])
	}
	if best := c.want.Best(candidates, mine); best != nil {
		return best, true
	}
	return nil, s.isMade(class, node)
}

// isMade says whether somebody makes volumes of a class that the node can use.
func (s *Storage) isMade(name string, node Node) bool {
	class := s.classes[name]
	if class == nil || class.Provisioner == volume.NoProvisioner {
		return false
	}
	return len(class.AllowedTopologies) == 0 || slices.ContainsFunc(class.AllowedTopologies,
		func(t corev1.TopologySelectorTerm) bool {
			for _, r := range t.MatchLabelExpressions {
				if value, there := node.Labels[r.Key]; !there || !slices.Contains(r.Values, value) {
					return false
				}
			}
			return true
		})
}

func listed(volumes map[string]*corev1.PersistentVolume) []*corev1.PersistentVolume {
	out := make([]*corev1.PersistentVolume, 0, len(volumes))
	for _, v := range volumes {
		out = append(out, v)
	}
	return out
}
