package variant

import (
	"encoding/json"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// asJSON is a value as JSON has it.
func asJSON(t *testing.T, value any) map[string]any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	out, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A pod as JSON has it becomes what the typed template says, and keeps what these types do not know and what others
// have added. To apply it again changes nothing.
func TestAppliedToJSON(t *testing.T) {
	for name, patch := range map[string]string{
		"an environment": threads,
		"a container and a volume": `{"spec": {"volumes": [{"name": "v", "emptyDir": {}}],
			"containers": [{"name": "more", "image": "more:1", "ports": [{"containerPort": 80}]}]}}`,
		"a container goes":    `{"spec": {"containers": [{"name": "sidecar", "$patch": "delete"}]}}`,
		"a field goes":        `{"spec": {"containers": [{"name": "agent", "resources": {"requests": {"cpu": null}}}]}}`,
		"annotations":         `{"metadata": {"annotations": {"a": null, "c": "d"}}}`,
		"a number":            `{"spec": {"terminationGracePeriodSeconds": 7}}`,
		"nothing but amounts": ``,
	} {
		t.Run(name, func(t *testing.T) {
			v := Variant{Name: "v", Resources: map[string]v1alpha1.VariantResources{"agent": {
				Requests: map[corev1.ResourceName]string{"memory": "node.allocatable.memory * 0.1"},
				Limits:   map[corev1.ResourceName]string{"memory": "node.allocatable.memory * 0.5"}}}}
			if patch != "" {
				v.Patch = json.RawMessage(patch)
			}
			m := must(t, v).On(template())
			o := m.Of(node(nil, 4, 10<<30))
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			want := o.Template.DeepCopy()
			o.Resources.Fill(&want.Spec)
			all := asJSON(t, template())
			spec, meta := all["spec"].(map[string]any), all["metadata"].(map[string]any)
			spec["ofTomorrow"] = map[string]any{"n": json.Number("9007199254740993")}
			spec["containers"] = append(spec["containers"].([]any), map[string]any{"name": "injected", "image": "mesh:1"})
			before := asJSON(t, all)
			annotations, _ := meta["annotations"].(map[string]any)
			for range 2 {
				var err error
				annotations, spec, err = o.Apply(annotations, spec)
				if err != nil {
					t.Fatal(err)
				}
			}
			if !apiequality.Semantic.DeepEqual(all, before) {
				t.Error("what it was given has changed")
			}
			text, err := json.Marshal(spec)
			if err != nil {
				t.Fatal(err)
			}
			var got corev1.PodSpec
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			containers := map[string]corev1.Container{}
			for _, c := range got.Containers {
				containers[c.Name] = c
			}
			n, _ := asJSON(t, spec["ofTomorrow"])["n"].(json.Number)
			if n != "9007199254740993" || containers["injected"].Image == "" {
				t.Errorf("what others have added is gone: %s", text)
			}
			delete(containers, "injected")
			wanted := map[string]corev1.Container{}
			for _, c := range want.Spec.Containers {
				wanted[c.Name] = c
			}
			got.Containers, want.Spec.Containers = nil, nil
			if !apiequality.Semantic.DeepEqual(got, want.Spec) || !apiequality.Semantic.DeepEqual(containers, wanted) {
				t.Errorf("the pod is %s, want %+v with %+v", text, want.Spec, wanted)
			}
			plain := map[string]string{}
			for k, v := range annotations {
				plain[k], _ = v.(string)
			}
			if !maps.Equal(plain, want.Annotations) {
				t.Errorf("its annotations are %v, want %v", plain, want.Annotations)
			}
		})
	}
}

// The mark of a pod that has no name yet is that of pods whose names are generated alike, and of no template.
func TestMarkBeforeTheName(t *testing.T) {
	o := must(t, Variant{Name: "a", Patch: json.RawMessage(threads)}).On(template()).Of(node(nil, 4, 1))
	text, err := o.TextFor("agent-")
	if err != nil {
		t.Fatal(err)
	}
	marked := map[string]string{Annotation: text, "other": "stays"}
	for name, c := range map[string]struct {
		meta metav1.ObjectMeta
		is   string
	}{
		"before it has a name": {metav1.ObjectMeta{GenerateName: "agent-"}, "a"},
		"with its name":        {metav1.ObjectMeta{GenerateName: "agent-", Name: "agent-x"}, "a"},
		"of another":           {metav1.ObjectMeta{GenerateName: "agents-", Name: "agent-x"}, ""},
		"of nobody":            {metav1.ObjectMeta{}, ""},
		"by the name alone":    {metav1.ObjectMeta{Name: "agent-"}, ""},
	} {
		c.meta.Annotations = marked
		if got := MarkOf(&c.meta); got.Variant != c.is {
			t.Errorf("%s it is %+v", name, got)
		}
	}
	if MarkOf(&metav1.ObjectMeta{Name: "p", Annotations: map[string]string{Annotation: `{"variant":"a"}`}}).Variant != "" {
		t.Error("a mark of no pod is taken")
	}
	if left := Disowned(marked); len(left) != 1 || len(marked) != 2 {
		t.Errorf("of a template's annotations %v are left, and %v are those given", left, marked)
	}
}
