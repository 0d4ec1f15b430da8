package resizing

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/objects/pod"
)

// Way is how a running pod becomes one that would be made now.
type Way struct {
	// Amounts are those of cpu and memory that are to be others, by container; none if the pod asks for them already.
	Amounts variant.Resources
	// Restarts are the containers that their node restarts for it, by their resizePolicy.
	Restarts []string
	// Mark is what the pod was made by, from then on; that of the template as it is for a plain pod.
	Mark variant.Mark
	of   basis
}

// basis is what a pod says of its amounts, by which a way was found.
type basis struct{ intent, mark string }

func basisOf(p *corev1.Pod) basis {
	return basis{p.Annotations[IntentAnnotation], p.Annotations[variant.Annotation]}
}

// IsOf reports whether the pod says of its amounts what it said when the way was found, or that it is about to be given
// those of the way. One that says something else was resized since, and the way may leave it with amounts of neither.
func (w *Way) IsOf(p *corev1.Pod) bool {
	is := basisOf(p)
	return is.mark == w.of.mark && (is.intent == w.of.intent || w.isIntended(p))
}

// compute are the resources that a running pod can be given more or less of.
var compute = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// Find finds the way of a pod that was made of the template base to the outcome, which is of the same template. The
// error says why the pod is to be replaced: what differs is more than a resize can express, by the rules of Kubernetes'
// pods/resize, or its node has answered that it cannot be.
func Find(p *corev1.Pod, base *corev1.PodTemplateSpec, o *variant.Outcome) (*Way, error) {
	have, want := variant.MarkOf(&p.ObjectMeta), o.Mark
	if o.Plain {
		want = variant.Mark{}
	}
	if err := sameShape(&have, &want); err != nil {
		return nil, err
	}
	f := finder{from: have.Compute(base), half: HalfWay(p), to: want.Compute(base)}
	f.way.Amounts, f.way.of = variant.Resources{}, basisOf(p)
	after := p.DeepCopy()
	for i := range after.Spec.InitContainers {
		c := &after.Spec.InitContainers[i]
		if err := f.container(c, pod.IsSidecar(c)); err != nil {
			return nil, err
		}
	}
	for i := range after.Spec.Containers {
		if err := f.container(&after.Spec.Containers[i], true); err != nil {
			return nil, err
		}
	}
	if was := classOf(p); was != pod.QOS(after) {
		return nil, fmt.Errorf("its QoS class would change from %s to %s", was, pod.QOS(after))
	}
	if message, is := Infeasible(p); is && len(f.way.Amounts) == 0 {
		return nil, fmt.Errorf("its node cannot give it as much while it runs: %s", message)
	}
	f.way.Mark = want
	f.way.Mark.Resources = keepDisk(&have, &want)
	return &f.way, nil
}

// classOf is the class of service that the pod has for good.
func classOf(p *corev1.Pod) corev1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	return pod.QOS(p)
}

// sameShape says what differs beside amounts of cpu and memory.
func sameShape(have, want *variant.Mark) error {
	switch {
	case have.Effect != want.Effect && have.IsOld():
		return errors.New("it does not say which amounts a patch gave it: an older version made it")
	case have.Effect != want.Effect && have.Shape != want.Shape:
		return errors.New("more differs than cpu and memory")
	case have.Effect == want.Effect && have.IsOld():
		have.Shape, have.Patched = want.Shape, want.Patched
	}
	for _, container := range slices.Sorted(maps.Keys(union(have.Resources, want.Resources))) {
		h, w := have.Resources[container], want.Resources[container]
		if !variant.Near(disk(h.Requests), disk(w.Requests)) || !variant.Near(disk(h.Limits), disk(w.Limits)) {
			return fmt.Errorf("container %s is to have another amount of ephemeral-storage", container)
		}
	}
	return nil
}

func union(a, b variant.Resources) variant.Resources {
	out := variant.Resources{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// disk are the amounts that no resize changes.
func disk(list corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, amount := range list {
		if !slices.Contains(compute, name) {
			out[name] = amount
		}
	}
	return out
}

// keepDisk is what formulas gave the pod after the resize: of disk it keeps what it has, which is close.
func keepDisk(have, want *variant.Mark) variant.Resources {
	out := variant.Resources{}
	for container, w := range want.Resources {
		h := have.Resources[container]
		w.Requests, w.Limits = maps.Clone(w.Requests), maps.Clone(w.Limits)
		maps.Copy(w.Requests, disk(h.Requests))
		maps.Copy(w.Limits, disk(h.Limits))
		out[container] = w
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// finder compares what containers have with what they are to have. half is what a resize that ended half way gave them.
type finder struct {
	from, half, to variant.Resources
	way            Way
}

// container has one, which is the finder's, ask for what it is to have.
func (f *finder) container(c *corev1.Container, resizable bool) error {
	is, from, half, to := f.way.Amounts[c.Name], f.from[c.Name], f.half[c.Name], f.to[c.Name]
	for _, list := range []amounts{
		{"request", with(from.Requests, half.Requests), to.Requests, &c.Resources.Requests, &is.Requests},
		{"limit", with(from.Limits, half.Limits), to.Limits, &c.Resources.Limits, &is.Limits},
	} {
		for _, name := range compute {
			changed, err := list.change(c.Name, name, resizable)
			if err != nil {
				return err
			}
			if changed {
				f.restarts(c, name)
			}
		}
	}
	if len(is.Requests)+len(is.Limits) > 0 {
		f.way.Amounts[c.Name] = is
	}
	for _, name := range compute {
		limit, is := c.Resources.Limits[name]
		if request := c.Resources.Requests[name]; is && request.Cmp(limit) > 0 {
			return fmt.Errorf("container %s would request %s of %s, and its limit is %s", c.Name, &request, name, &limit)
		}
	}
	return nil
}

// with is a list with what a resize gave that ended half way.
func with(list, half corev1.ResourceList) corev1.ResourceList {
	if len(half) == 0 {
		return list
	}
	out := corev1.ResourceList{}
	maps.Copy(out, list)
	maps.Copy(out, half)
	return out
}

// amounts are what a container requests, or may use: what it was made with and is to have, what the running one has,
// which is changed, and what is to be asked for.
type amounts struct {
	kind      string
	from, to  corev1.ResourceList
	live, out *corev1.ResourceList
}

// change has the container have as much of the resource as it is to have, and reports whether that is to be asked for.
func (a *amounts) change(container string, name corev1.ResourceName, resizable bool) (bool, error) {
	had, has := a.from[name]
	want, wants := a.to[name]
	live, lives := (*a.live)[name]
	switch {
	case !has && !wants:
		return false, nil
	case !wants:
		return false, fmt.Errorf("container %s is to have no %s of %s any more", container, a.kind, name)
	case has && had.Cmp(want) == 0: // if it has another, somebody gave it that: it is his
		return false, nil
	case !resizable:
		return false, fmt.Errorf("init container %s is to have another %s of %s", container, a.kind, name)
	case lives && live.Cmp(want) == 0: // an earlier try did it
		return false, nil
	}
	for _, list := range []*corev1.ResourceList{a.live, a.out} {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = want
	}
	return true, nil
}

// restarts notes that the container is restarted, if it is for another amount of the resource.
func (f *finder) restarts(c *corev1.Container, name corev1.ResourceName) {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == name && p.RestartPolicy == corev1.RestartContainer && !slices.Contains(f.way.Restarts, c.Name) {
			f.way.Restarts = append(f.way.Restarts, c.Name)
		}
	}
}

// Words says for people what the way changes.
func (w *Way) Words() string {
	var parts []string
	for _, container := range slices.Sorted(maps.Keys(w.Amounts)) {
		r := w.Amounts[container]
		for _, list := range []struct {
			kind string
			of   corev1.ResourceList
		}{{"requests", r.Requests}, {"limits", r.Limits}} {
			for _, name := range slices.Sorted(maps.Keys(list.of)) {
				q := list.of[name]
				parts = append(parts, fmt.Sprintf("%s %s %s of %s", container, list.kind, &q, name))
			}
		}
	}
	return strings.Join(parts, ", ")
}
