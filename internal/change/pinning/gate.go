package pinning

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Gate is the scheduling gate of a pod that is to ask the registry, until it may. Annotation says since when it may;
// behind the time stands the pod's own name, so that it says nothing in a template or copied to another pod.
const (
	Gate       = "everynode.io/first-node"
	Annotation = "everynode.io/first-node"
)

// IsGated reports whether a pod of the spec waits until it may ask the registry.
func IsGated(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == Gate })
}

// Mark is the annotation's value for the pod of that name, which may ask from now on.
func Mark(now time.Time, name string) string { return now.UTC().Format(time.RFC3339) + " " + name }

// LetThrough returns since when a pod that was behind the gate may ask the registry, and whether it was.
func LetThrough(p *corev1.Pod) (since time.Time, was bool) {
	at, name, _ := strings.Cut(p.Annotations[Annotation], " ")
	since, err := time.Parse(time.RFC3339, at)
	return since, err == nil && name == p.Name
}

// Asks reports whether a pod names a tag of its template, of which a registry is asked.
func Asks(template *corev1.PodSpec, p *corev1.Pod) bool {
	_, _, made := Read(template, p)
	return !made
}

// HasPulled reports whether all containers of a pod that name a tag have their image, or its daemon has run: it would
// not be worth another start.
func HasPulled(p *corev1.Pod) bool {
	if slices.ContainsFunc(p.Status.ContainerStatuses, began) {
		return true
	}
	has := func(s corev1.ContainerStatus) bool { return s.ImageID != "" }
	all := slices.ContainsFunc(p.Status.InitContainerStatuses, has) ||
		slices.ContainsFunc(p.Status.ContainerStatuses, has)
	tagged(&p.Spec, func(c *corev1.Container) { all = all && pulled(p, c.Name) != "" })
	return all
}

// began reports whether a container has run.
func began(s corev1.ContainerStatus) bool {
	return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
}

// skew is by how much the clocks of whoever notes when digests were learned and of the API may differ.
const skew = 10 * time.Second

// RunsOther reports whether a pod was made by tag after the digests of its template were known, as nobody could fill
// them in, and runs other bits. Who was let through the gate was to find them out. One whose image somebody else has
// written would be given that again, so it is none.
func RunsOther(template *corev1.PodSpec, known *v1alpha1.PinnedTemplate, p *corev1.Pod) bool {
	_, was := LetThrough(p)
	if was || known.Since == nil || !p.CreationTimestamp.After(known.Since.Add(skew)) {
		return false
	}
	digests := map[string]string{}
	for _, i := range known.Images {
		digests[i.Image] = i.Digest
	}
	other := false
	differs := func(image, of string) bool { return of != "" && digests[image] != "" && of != digests[image] }
	tagged(template, func(c *corev1.Container) {
		of, has, asked := resolved(c, p)
		other = other || has && asked && names(p, c) && differs(c.Image, of)
	})
	taggedVolumes(template, func(v *corev1.Volume) {
		of, has, asked := resolvedVolume(v, p)
		other = other || has && asked && namesVolume(p, v) && differs(v.Image.Reference, of)
	})
	return other
}

// names reports whether a pod's container has the very image of its template, in which a digest can be filled in.
func names(p *corev1.Pod, of *corev1.Container) bool {
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			if c := &containers[i]; c.Name == of.Name && c.Image == of.Image {
				return true
			}
		}
	}
	return false
}
