package admit

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant"
)

// outcome is what a variant makes of the pod on a node.
func outcome(t *testing.T, of *corev1.PodTemplateSpec, patch string) *variant.Outcome {
	t.Helper()
	set, err := variant.NewSet([]variant.Variant{{Name: "large", Patch: json.RawMessage(patch)}})
	if err != nil {
		t.Fatal(err)
	}
	o := set.On(of).Of(&variant.Node{Name: "node-1"})
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	return &o
}

// A pod gets its node's variant: of its own template, with all that others have added, and of another. It is marked for
// the name that it will have, so that the one who leads knows it. One that has it is given it again, and is the same.
func TestAPodGetsItsVariant(t *testing.T) {
	const patch = `{"metadata": {"annotations": {"size": "xl"}}, "spec": {"containers": [{"name": "agent",
		"env": [{"name": "THREADS", "value": "8"}]}]}}`
	const want = "old_bbbbbbbbbb"
	one, two := templateOf("agent:1"), templateOf("agent:2")
	both := []*appsv1.ControllerRevision{revisionOf(t, "old", one), revisionOf(t, "new", two)}
	for name, c := range map[string]struct {
		of        *corev1.PodTemplateSpec
		hash      string
		keepsMore bool
	}{"of its own template": {one, "old", true}, "of another": {two, "new", false}} {
		t.Run(name, func(t *testing.T) {
			o := outcome(t, one, patch)
			in := NewPod{Pod: encode(t, admitted(made(c.of, c.hash, "node-1"))), Want: want, Variant: o, Revisions: both}
			var first []byte
			for range 2 {
				got := Pod(in)
				if got.Verb != Rewrite {
					t.Fatalf("%s: %s", got.Verb, got.Why)
				}
				after := &corev1.Pod{}
				apply(t, in.Pod, got.Patch, after)
				if first == nil {
					first = encode(t, after)
				}
				in.Pod = encode(t, after)
			}
			if string(in.Pod) != string(first) {
				t.Errorf("the second time it becomes\n%s\nand not\n%s", in.Pod, first)
			}
			var after corev1.Pod
			err := json.Unmarshal(first, &after)
			if err != nil {
				t.Fatal(err)
			}
			mark := variant.MarkOf(&after.ObjectMeta)
			if !mark.Same(&o.Mark) || after.Labels[content.RevisionLabel] != want ||
				after.Labels[appsv1.ControllerRevisionHashLabelKey] != "old" {
				t.Errorf("it is marked %+v, with labels %v", mark, after.Labels)
			}
			after.Name = "agent-x7k2p"
			if mark = variant.MarkOf(&after.ObjectMeta); !mark.Same(&o.Mark) {
				t.Errorf("once it has a name it is marked %+v", mark)
			}
			wanted := one.DeepCopy()
			wanted.Annotations = map[string]string{"size": "xl"}
			wanted.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "THREADS", Value: "8"}}
			plain := made(wanted, "old", "node-1")
			if c.keepsMore {
				plain = admitted(plain)
			}
			delete(after.Annotations, variant.Annotation)
			if !apiequality.Semantic.DeepEqual(after.Spec, plain.Spec) ||
				!apiequality.Semantic.DeepEqual(after.Annotations, plain.Annotations) {
				t.Errorf("the pod becomes\n%s\nand not\n%s", encode(t, after), encode(t, plain))
			}
		})
	}
}

// On a node whose pod is that of the template a revision with variants is said of it, and nothing else changes. A mark
// that its author wrote into the template is taken off.
func TestAPodWithoutItsVariant(t *testing.T) {
	const want = "old_bbbbbbbbbb"
	forged, err := outcome(t, templateOf("agent:1"), `{"spec": {"hostPID": true}}`).TextFor("agent-")
	if err != nil {
		t.Fatal(err)
	}
	one, two := templateOf("agent:1"), templateOf("agent:2")
	marked := templateOf("agent:1")
	marked.Annotations = map[string]string{variant.Annotation: forged}
	for name, c := range map[string]struct {
		template, of *corev1.PodTemplateSpec
		hash         string
	}{
		"of its own template":           {one, one, "old"},
		"of another":                    {one, two, "new"},
		"of one with a mark":            {marked, marked, "old"},
		"of another than one with such": {marked, two, "new"},
	} {
		in := NewPod{Pod: encode(t, made(c.of, c.hash, "node-1")), Want: want, Variant: &variant.Outcome{Plain: true},
			Revisions: []*appsv1.ControllerRevision{revisionOf(t, "old", c.template), revisionOf(t, "new", two)}}
		got := Pod(in)
		if got.Verb != Rewrite {
			t.Fatalf("%s: %s: %s", name, got.Verb, got.Why)
		}
		after := &corev1.Pod{}
		apply(t, in.Pod, got.Patch, after)
		if variant.MarkOf(&after.ObjectMeta).Variant != "" || after.Labels[content.RevisionLabel] != want {
			t.Errorf("%s: it becomes %s", name, encode(t, after))
		}
		in.Pod = encode(t, after)
		if got = Pod(in); got.Verb != AsMade {
			t.Errorf("%s: asked again, it is changed again: %s", name, got.Patch)
		}
	}
}
