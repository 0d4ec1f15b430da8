package admit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// Verb says what the answer does with a pod.
type Verb uint8

// The verbs. Unknown means that the pod's revision cannot be told or made: the caller admits or refuses it as its
// failure policy says, and counts it. Later has it refused for now: whoever makes it tries again, and it is known then.
const (
	AsMade Verb = iota
	Rewrite
	Unknown
	Later
)

func (v Verb) String() string { return [...]string{"as made", "rewrite", "unknown", "later"}[v] }

// NewPod is a pod that is being created for a DaemonSet, with what is needed to decide about it.
type NewPod struct {
	// Pod is its JSON as the API server shows it to a webhook.
	Pod []byte
	// Want is the revision that the pod's node is to have; "" if none is known, as for a DaemonSet whose rollout has
	// not begun. Members are those of its content, where it has some.
	Want    string
	Members []content.Member
	// Images are the digests of the revision's images, where they are pinned and known. First tells that the pod is to
	// find them out.
	Images []v1alpha1.PinnedImage
	First  bool
	// Variant is what the pod is to be like by its node's variant, which can be had; nil for a revision without variants.
	Variant *variant.Outcome
	// Revisions are those of the DaemonSet, copies that its rollout keeps included.
	Revisions []*appsv1.ControllerRevision
}

// Answer is what becomes of a pod.
type Answer struct {
	Verb Verb
	// Why says in a few words why, for logs and metrics.
	Why string
	// Patch is a JSON patch (RFC 6902), for Rewrite.
	Patch []byte
}

// podTemplateGeneration is the label by which kube-controller-manager counts a pod as up to date whatever its hash. A
// ControllerRevision does not record the number, so a pod of another revision is without it.
const podTemplateGeneration = "pod-template-generation"

// object is an object, or a part of one, as JSON has it.
type object = map[string]any

// Pod decides about a new pod.
func Pod(in NewPod) Answer {
	pod, err := decode(in.Pod)
	if err != nil {
		return Answer{Unknown, "the pod cannot be read: " + err.Error(), nil}
	}
	labels := part(pod, "metadata", "labels")
	made, _ := labels[appsv1.ControllerRevisionHashLabelKey].(string)
	if in.Want == "" {
		return Answer{AsMade, "no revision is known for its node", nil}
	}
	want := content.TemplateOf(in.Want)
	// What claims another content refers to the copies of that, or its template says so: it is made from nothing.
	claims, _ := labels[content.RevisionLabel].(string)
	if made == want && (content.IDOf(claims) == "" || claims == in.Want) {
		if in.varies() {
			patch, err := varied(pod, in)
			return answer(fmt.Sprintf("variant %s of %s", in.Variant.Variant, in.Want), patch, err)
		}
		return refer(pod, in)
	}
	node := Node(in.Pod)
	if node == "" {
		return Answer{Unknown, "it is not made for one node", nil}
	}
	from, err := template(in.Revisions, made)
	if err != nil {
		return Answer{Unknown, "the revision it was made for: " + err.Error(), nil}
	}
	to, err := template(in.Revisions, want)
	if err != nil {
		return Answer{Unknown, "the revision it is to have: " + err.Error(), nil}
	}
	patch, err := rewrite(pod, from, to, in, node)
	return answer(fmt.Sprintf("%s in place of %s", in.Want, made), patch, err)
}

// answer has a pod be patched, unless the patch could not be found.
func answer(why string, patch []step, err error) Answer {
	if err != nil {
		return Answer{Unknown, err.Error(), nil}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return Answer{Unknown, err.Error(), nil}
	}
	return Answer{Rewrite, why, raw}
}

// Node returns the name of the node that a DaemonSet's pod is made for, before it is bound: that of its required node
// affinity. It is "" where that does not name exactly one node, in every term.
func Node(pod []byte) string {
	var p struct {
		Spec struct{ Affinity *corev1.Affinity }
	}
	err := json.Unmarshal(pod, &p)
	if err != nil || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return ""
	}
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	name := ""
	for _, term := range required.NodeSelectorTerms {
		named := ""
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				named = f.Values[0]
			}
		}
		if named == "" || name != "" && named != name {
			return ""
		}
		name = named
	}
	return name
}

// template returns the pod template of the revision with the hash. Two revisions of one hash that hold different
// templates are an error: by the hash nobody can say which is meant.
func template(revisions []*appsv1.ControllerRevision, hash string) (object, error) {
	var found object
	for _, r := range revisions {
		if history.HashOf(r) != hash {
			continue
		}
		data, err := decode(r.Data.Raw)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", r.Name, err)
		}
		held := part(data, "spec", "template")
		if held["spec"] == nil {
			return nil, fmt.Errorf("%s holds no pod template", r.Name)
		}
		if found != nil && !reflect.DeepEqual(found, held) {
			return nil, fmt.Errorf("two templates have the hash %q", hash)
		}
		found = held
	}
	if found == nil {
		return nil, fmt.Errorf("there is none with the hash %q", hash)
	}
	return found, nil
}

// step is one operation of a JSON patch.
type step struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// revisionPath is where the label of a pod with its whole revision is.
const revisionPath = "/metadata/labels/everynode.io~1revision"

// rewrite is the patch that makes of a pod, made of one template, the pod of another one.
func rewrite(pod, from, to object, in NewPod, node string) ([]step, error) {
	spec, err := specOf(from, to, node)
	if err != nil {
		return nil, err
	}
	meta := part(pod, "metadata")
	annotations, spec, err := in.vary(meta, part(to, "metadata", "annotations"), spec)
	if err != nil {
		return nil, err
	}
	content.RewriteJSON(spec, in.Members)
	_, err = in.pin(spec)
	if err != nil {
		return nil, err
	}
	labels := object{}
	for k, v := range part(to, "metadata", "labels") {
		labels[k] = v
	}
	labels[appsv1.ControllerRevisionHashLabelKey] = content.TemplateOf(in.Want)
	delete(labels, podTemplateGeneration)
	delete(labels, content.RevisionLabel)
	if is := in.label(); is != "" {
		labels[content.RevisionLabel] = is
	}
	patch := []step{{"add", "/metadata/labels", labels}}
	have := func(name string, value any, is bool) {
		switch {
		case is:
			patch = append(patch, step{"add", "/metadata/" + name, value})
		case meta[name] != nil:
			patch = append(patch, step{Op: "remove", Path: "/metadata/" + name})
		}
	}
	finalizers := part(to, "metadata")["finalizers"]
	have("annotations", annotations, len(annotations) > 0)
	have("finalizers", finalizers, finalizers != nil)
	return append(patch, step{"add", "/spec", spec}), nil
}

// refer has a pod of the right template refer to the copies of its content, and name the digests of its images. All
// else that was added to it stays.
func refer(pod object, in NewPod) Answer {
	var patch []step
	for _, e := range content.RewriteJSON(part(pod, "spec"), in.Members) {
		patch = append(patch, step{e.Op, "/spec" + e.Path, e.Value})
	}
	labels, why := part(pod, "metadata", "labels"), "images of "+in.Want
	if patch != nil || in.label() != "" && labels[content.RevisionLabel] != in.Want {
		patch = append(patch, step{"add", revisionPath, in.Want})
		why = "the whole of " + in.Want
	}
	if part(pod, "metadata", "annotations")[variant.Annotation] != nil {
		patch = append(patch, step{Op: "remove", Path: annotationPath(variant.Annotation)})
		why = "no variant"
	}
	filled, err := in.pin(part(pod, "spec"))
	if err != nil {
		return Answer{Unknown, err.Error(), nil}
	}
	patch = append(patch, filled...)
	if patch == nil {
		return Answer{AsMade, "it has its node's revision", nil}
	}
	return answer(why, patch, nil)
}

// specOf is the specification of a pod of one template, placed as a pod of the other one is.
func specOf(from, to object, node string) (object, error) {
	var f, t corev1.PodSpec
	err := errors.Join(into(from["spec"], &f), into(to["spec"], &t))
	if err != nil {
		return nil, fmt.Errorf("read a template: %w", err)
	}
	spec, placed := object{}, part(from, "spec")
	for k, v := range part(to, "spec") {
		spec[k] = v
	}
	for _, name := range []string{"nodeName", "nodeSelector", "schedulerName"} {
		delete(spec, name)
		if v, ok := placed[name]; ok {
			spec[name] = v
		}
	}
	// A daemon that has its node's network is also wanted where networks are not ready yet.
	f.HostNetwork = f.HostNetwork || t.HostNetwork
	spec["tolerations"], err = tolerations(placed["tolerations"], &f)
	if err != nil {
		return nil, err
	}
	spec["affinity"], err = pinned(placed, node)
	return spec, err
}

// tolerations are those of a template, as JSON has them, and those that every daemon has.
func tolerations(raw any, spec *corev1.PodSpec) ([]any, error) {
	written, _ := raw.([]any)
	var out []any
	for i, t := range placement.Tolerations(spec) {
		if i < len(spec.Tolerations) && reflect.DeepEqual(t, spec.Tolerations[i]) {
			out = append(out, written[i])
			continue
		}
		var plain object
		err := into(t, &plain)
		if err != nil {
			return nil, err
		}
		out = append(out, plain)
	}
	return out, nil
}

// pinned is the affinity of a template, with its required node terms replaced by one that names the node.
func pinned(spec object, node string) (object, error) {
	var pin object
	err := into(placement.PinToNode(nil, node), &pin)
	if err != nil {
		return nil, err
	}
	out, nodes := object{}, object{}
	for k, v := range part(spec, "affinity") {
		out[k] = v
	}
	for k, v := range part(spec, "affinity", "nodeAffinity") {
		nodes[k] = v
	}
	const required = "requiredDuringSchedulingIgnoredDuringExecution"
	nodes[required] = part(pin, "nodeAffinity")[required]
	out["nodeAffinity"] = nodes
	return out, nil
}

// decode reads an object, and keeps its numbers as they are written.
func decode(raw []byte) (object, error) {
	var out object
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(&out)
	if err == nil && out == nil {
		err = errors.New("it is empty")
	}
	return out, err
}

// part is the object below some names; nil if there is none.
func part(in object, names ...string) object {
	for _, name := range names {
		in, _ = in[name].(object)
	}
	return in
}

// into writes a value as JSON and reads it as another type.
func into(value, out any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, out)
}
