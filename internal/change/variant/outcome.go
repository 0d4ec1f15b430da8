package variant

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	expr "github.com/everynode/everynode/internal/change/variant/formula"
)

// Annotation is the annotation of a pod with its Mark.
const Annotation = "everynode.io/variant"

// Resources are computed amounts by container.
type Resources map[string]corev1.ResourceRequirements

// Mark says by what a pod was made. It is written on the pod; one without has the template as it is.
type Mark struct {
	// Variant is the name of its variant, Effect what its patch changed; "" for nothing.
	Variant string `json:"variant,omitempty"`
	Effect  string `json:"effect,omitempty"`
	// Shape is what the patch changed beside the cpu and memory of containers that can be resized, Patched what it gave
	// those whose cpu or memory it changed.
	Shape   string    `json:"shape,omitempty"`
	Patched Resources `json:"patched,omitempty"`
	// Resources are what formulas gave.
	Resources Resources `json:"resources,omitempty"`
}

// marked is a mark as it is written. The pod's own name is in it, so that it says nothing in a template, or copied to
// another pod. Admission sees a pod before it has a name: there it is what its name is generated from.
type marked struct {
	Pod       string `json:"pod,omitempty"`
	Generated string `json:"generated,omitempty"`
	Mark
}

// MarkOf reads the mark of a pod. What cannot be read, or is of another pod, is none.
func MarkOf(pod *metav1.ObjectMeta) Mark {
	m := readMark(pod.Annotations[Annotation])
	of, name := m.Pod, pod.Name
	if of == "" {
		of, name = m.Generated, pod.GenerateName
	}
	if of == "" || of != name {
		return Mark{}
	}
	return m.Mark
}

// readMark reads a mark, whosever it is. What cannot be read is none.
func readMark(text string) (m marked) {
	if text == "" || json.Unmarshal([]byte(text), &m) != nil {
		return marked{}
	}
	return m
}

// Disowned returns the annotations of a template without what pods of it could pass for a mark by, that of admission.
// It leaves the ones given as they are.
func Disowned(annotations map[string]string) map[string]string {
	if readMark(annotations[Annotation]).Generated == "" {
		return annotations
	}
	out := maps.Clone(annotations)
	delete(out, Annotation)
	return out
}

// Text is the annotation's value for a pod of that name; "" for a pod of the template as it is.
func (m *Mark) Text(pod string) (string, error) { return m.text(marked{Pod: pod, Mark: *m}) }

// TextFor is Text for a pod whose name is going to be generated from that.
func (m *Mark) TextFor(generateName string) (string, error) {
	return m.text(marked{Generated: generateName, Mark: *m})
}

func (m *Mark) text(as marked) (string, error) {
	if m.Variant == "" {
		return "", nil
	}
	text, err := json.Marshal(as)
	if err != nil {
		return "", fmt.Errorf("write the mark of variant %s: %w", m.Variant, err)
	}
	return string(text), nil
}

// Outcome is what the pod of a revision is to be like on a node.
type Outcome struct {
	Mark
	// Template is the template with the patch, and without what formulas give. Nobody changes it.
	Template *corev1.PodTemplateSpec
	// Plain tells that the pod is that of the template as it is, Close that it is but for amounts that are close.
	Plain, Close bool
	// Tied are the variants that are in conflict; the node keeps what it has, and a new pod is made by the first.
	Tied []string
	// Err says why the variant cannot be had there: the node keeps what it has.
	Err error
	// exact is what formulas gave before it was rounded up.
	exact map[place]float64
	patch []byte
	of    *corev1.PodTemplateSpec
}

// place is where an amount is.
type place struct {
	container string
	limit     bool
	name      corev1.ResourceName
}

// Fits reports whether a pod with the mark need not be replaced.
func (o *Outcome) Fits(have *Mark) bool {
	switch {
	case o.Err != nil, len(o.Tied) > 0:
		return true
	case have.Variant == "":
		return o.Plain || o.Close
	case have.Effect != o.Effect || len(have.Resources) != len(o.Resources):
		return false
	}
	for container, want := range o.Resources {
		had, is := have.Resources[container]
		if !is || !near(had.Requests, want.Requests, o.close(container, false)) ||
			!near(had.Limits, want.Limits, o.close(container, true)) {
			return false
		}
	}
	return true
}

// FitsScaled is Fits of a pod that somebody else gives amounts: what formulas give is not followed.
func (o *Outcome) FitsScaled(have *Mark) bool {
	return o.Err != nil || len(o.Tied) > 0 || have.Effect == o.Effect
}

// Near reports whether both have the same resources, in amounts of which a pod with the first need not be touched.
func Near(have, want corev1.ResourceList) bool {
	return near(have, want, func(_ corev1.ResourceName, have, want resource.Quantity) bool { return closeTo(have, want) })
}

// same compares two amounts of a resource.
type same func(name corev1.ResourceName, have, want resource.Quantity) bool

func near(have, want corev1.ResourceList, is same) bool {
	return len(have) == len(want) && !slices.ContainsFunc(slices.Collect(maps.Keys(want)),
		func(name corev1.ResourceName) bool {
			h, has := have[name]
			return !has || !is(name, h, want[name])
		})
}

// close compares what a container has with what was computed. Less than a tenth above what it has is close even where
// it is rounded up to more: else each move of a node's size at the edge of what is rounded would change the pod.
func (o *Outcome) close(container string, limit bool) same {
	return func(name corev1.ResourceName, have, want resource.Quantity) bool {
		exact, is := o.exact[place{container, limit, name}]
		h := have.AsApproximateFloat64()
		return closeTo(have, want) || is && exact > h && (exact-h)*10 < h
	}
}

// Molds are the pods of one template by the variants of a set.
type Molds struct {
	set    *Set
	of     *corev1.PodTemplateSpec
	merged map[int]merged
}

type merged struct {
	template *corev1.PodTemplateSpec
	effect   string
	shape    string
	patched  Resources
	err      error
}

// On applies the set to a template, which must not change afterwards.
func (s *Set) On(t *corev1.PodTemplateSpec) *Molds {
	return &Molds{set: s, of: t, merged: map[int]merged{}}
}

// Of is what the pod on a node is to be like.
func (m *Molds) Of(n *Node) (o Outcome) {
	at := m.set.choose(n.Labels)
	if len(at) == 0 {
		return Outcome{Template: m.of, Plain: true}
	}
	if len(at) > 1 {
		for _, i := range at {
			o.Tied = append(o.Tied, m.set.Variants[i].Name)
		}
	}
	i := at[0]
	o.Variant, o.patch, o.of = m.set.Variants[i].Name, m.set.Variants[i].Patch, m.of
	is := m.merge(i)
	o.Template, o.Effect, o.Shape, o.Patched, o.Err = is.template, is.effect, is.shape, is.patched, is.err
	if o.Err == nil {
		o.Err = m.compute(i, is.template, n, &o)
	}
	if o.Err != nil {
		o.Err = fmt.Errorf("variant %s: %w", o.Variant, o.Err)
		return o
	}
	exactly := func(_ corev1.ResourceName, have, want resource.Quantity) bool { return have.Cmp(want) == 0 }
	o.Plain = o.Effect == "" && m.asWritten(o.Resources, func(string, bool) same { return exactly })
	o.Close = o.Effect == "" && m.asWritten(o.Resources, o.close)
	return o
}

// Chosen names the variant that a node has; "" for none, or where some are in conflict.
func (m *Molds) Chosen(n *Node) string {
	if of := m.Rivals(n.Labels); len(of) == 1 {
		return of[0]
	}
	return ""
}

// Rivals names the variants of the highest priority that choose a node with these labels: none, one, or several that
// are in conflict.
func (m *Molds) Rivals(node map[string]string) (names []string) {
	for _, i := range m.set.choose(node) {
		names = append(names, m.set.Variants[i].Name)
	}
	return names
}

func (m *Molds) merge(i int) merged {
	is, known := m.merged[i]
	if known {
		return is
	}
	is.template, is.err = m.of, m.set.compiled[i].err
	if patch := m.set.Variants[i].Patch; is.err == nil && len(patch) > 0 {
		is.template, is.err = merge(m.of, patch)
		if is.err != nil {
			is.err = fmt.Errorf("its patch %w", is.err)
		} else {
			is.effect, is.err = effect(m.of, is.template)
		}
		if is.err == nil {
			is.shape, is.patched, is.err = shape(m.of, is.template)
		}
	}
	m.merged[i] = is
	return is
}

// containerOf finds a container, or an init container, by its name.
func containerOf(spec *corev1.PodSpec, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// compute works out what the formulas of a variant give on a node, and puts it into the outcome.
func (m *Molds) compute(i int, t *corev1.PodTemplateSpec, n *Node, into *Outcome) error {
	known := expr.Node{Name: n.Name, Labels: n.Labels,
		Allocatable: n.Size.Allocatable.named(), Capacity: n.Size.Capacity.named()}
	for _, f := range m.set.compiled[i].formulas {
		if containerOf(&t.Spec, f.container) == nil {
			return fmt.Errorf("%s: the template has no container %s", f.at(), f.container)
		}
		value, err := f.On(&known)
		if err != nil {
			return fmt.Errorf("%s: %w", f.at(), err)
		}
		amount, err := Round(f.name, value)
		if err != nil {
			return fmt.Errorf("%s %w", f.at(), err)
		}
		into.put(place{f.container, f.limit, f.name}, amount, value)
	}
	return m.within(t, into.Resources)
}

// put adds an amount, and what it was before it was rounded.
func (o *Outcome) put(at place, amount resource.Quantity, exact float64) {
	if o.Resources == nil {
		o.Resources, o.exact = Resources{}, map[place]float64{}
	}
	o.exact[at] = exact
	r := o.Resources[at.container]
	into := &r.Requests
	if at.limit {
		into = &r.Limits
	}
	if *into == nil {
		*into = corev1.ResourceList{}
	}
	(*into)[at.name] = amount
	o.Resources[at.container] = r
}

// within checks that no container requests more than it may use.
func (m *Molds) within(t *corev1.PodTemplateSpec, computed Resources) error {
	for _, name := range slices.Sorted(maps.Keys(computed)) {
		r := containerOf(&t.Spec, name).Resources.DeepCopy()
		r.Requests, r.Limits = with(r.Requests, computed[name].Requests), with(r.Limits, computed[name].Limits)
		for _, of := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			limit, is := r.Limits[of]
			if request := r.Requests[of]; is && request.Cmp(limit) > 0 {
				return fmt.Errorf("container %s would request %s of %s, and its limit is %s", name, &request, of, &limit)
			}
		}
	}
	return nil
}

// with returns the amounts with others in place of those of the same name.
func with(have, computed corev1.ResourceList) corev1.ResourceList {
	if len(computed) == 0 {
		return have
	}
	out := maps.Clone(have)
	if out == nil {
		out = corev1.ResourceList{}
	}
	maps.Copy(out, computed)
	return out
}

// asWritten reports whether the template says what was computed.
func (m *Molds) asWritten(computed Resources, as func(container string, limit bool) same) bool {
	says := func(have, want corev1.ResourceList, is same) bool {
		for name, amount := range want {
			if h, has := have[name]; !has || !is(name, h, amount) {
				return false
			}
		}
		return true
	}
	for name, r := range computed {
		c := containerOf(&m.of.Spec, name)
		if c == nil || !says(c.Resources.Requests, r.Requests, as(name, false)) ||
			!says(c.Resources.Limits, r.Limits, as(name, true)) {
			return false
		}
	}
	return true
}

// Fill has a pod's spec, whose lists of containers are nobody else's, request and be limited to what was computed.
func (r Resources) Fill(spec *corev1.PodSpec) {
	for name, computed := range r {
		if c := containerOf(spec, name); c != nil {
			c.Resources.Requests = with(c.Resources.Requests, computed.Requests)
			c.Resources.Limits = with(c.Resources.Limits, computed.Limits)
		}
	}
}

// Spec is the spec of a pod of the outcome, with what formulas give; what no container says that it requests is as its
// limit, as the API makes it. What it shares with the template nobody changes.
func (o *Outcome) Spec() corev1.PodSpec {
	out := o.Template.Spec
	out.Containers, out.InitContainers = slices.Clone(out.Containers), slices.Clone(out.InitContainers)
	o.Resources.Fill(&out)
	for _, list := range [][]corev1.Container{out.Containers, out.InitContainers} {
		for i := range list {
			list[i].Resources.Requests = with(list[i].Resources.Limits, list[i].Resources.Requests)
		}
	}
	return out
}

// Words says what a mark holds, for people.
func (m *Mark) Words() string {
	var parts []string
	for _, container := range slices.Sorted(maps.Keys(m.Resources)) {
		for _, kind := range []struct {
			name string
			of   corev1.ResourceList
		}{{"requests", m.Resources[container].Requests}, {"limits", m.Resources[container].Limits}} {
			for _, name := range slices.Sorted(maps.Keys(kind.of)) {
				q := kind.of[name]
				parts = append(parts, fmt.Sprintf("%s %s %s of %s", container, kind.name, &q, name))
			}
		}
	}
	if len(parts) == 0 {
		return m.Variant
	}
	return m.Variant + " (" + strings.Join(parts, ", ") + ")"
}

// Same reports whether both are the same, with amounts compared as amounts.
func (m *Mark) Same(o *Mark) bool { return apiequality.Semantic.DeepEqual(m, o) }

// Requests is what the containers of the pod request together, in cores and bytes.
func (o *Outcome) Requests() map[corev1.ResourceName]float64 {
	out := map[corev1.ResourceName]float64{}
	for i := range o.Template.Spec.Containers {
		c := &o.Template.Spec.Containers[i]
		for name, amount := range with(c.Resources.Requests, o.Resources[c.Name].Requests) {
			out[name] += amount.AsApproximateFloat64()
		}
	}
	return out
}
