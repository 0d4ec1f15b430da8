package admit

import (
	"maps"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant"
)

// varies reports whether the pod is another than its template's.
func (in *NewPod) varies() bool { return in.Variant != nil && !in.Variant.Plain }

// vary returns the annotations and the specification that a pod with that metadata is to have by its node's variant.
// The ones given stay as they are. A mark that somebody wrote is taken off.
func (in *NewPod) vary(meta, annotations, spec object) (object, object, error) {
	if !in.varies() {
		if annotations[variant.Annotation] != nil {
			annotations = maps.Clone(annotations)
			delete(annotations, variant.Annotation)
		}
		return annotations, spec, nil
	}
	annotations, spec, err := in.Variant.Apply(annotations, spec)
	if err != nil {
		return nil, nil, err
	}
	name, _ := meta["name"].(string)
	from, _ := meta["generateName"].(string)
	var mark string
	if name != "" {
		mark, err = in.Variant.Text(name)
	} else {
		mark, err = in.Variant.TextFor(from)
	}
	if annotations == nil {
		annotations = object{}
	}
	annotations[variant.Annotation] = mark
	return annotations, spec, err
}

// label is what the pod's label says of its whole revision; "" for none.
func (in *NewPod) label() string {
	if in.Want == content.TemplateOf(in.Want) {
		return ""
	}
	return in.Want
}

// varied has a pod of the right template be what its node's variant makes of it. What others have added to it stays.
func varied(pod object, in NewPod) ([]step, error) {
	meta := part(pod, "metadata")
	annotations, spec, err := in.vary(meta, part(meta, "annotations"), part(pod, "spec"))
	if err != nil {
		return nil, err
	}
	content.RewriteJSON(spec, in.Members)
	_, err = in.pin(spec)
	return []step{
		{"add", revisionPath, in.label()},
		{"add", "/metadata/annotations", annotations},
		{"add", "/spec", spec},
	}, err
}

// plain is a revision without its variants. What kube-controller-manager makes has none, and which revision it was made
// of is told by the rest.
func plain(revision string) string { return content.WithVariants(revision, "") }
