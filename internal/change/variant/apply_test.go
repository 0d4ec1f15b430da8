package variant

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// asJSON is a value as JSON has it.
func asJSON(t *testing.T, value any) map[string]any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	out, err := decode[map[string]any](text)
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

// A pod comes with what the API and others have worked out from the template's amounts. Where a variant changes these
// they are worked out again: what was a request by the limit of before may be above the new one.
func TestAmountsThatFollowFromOthers(t *testing.T) {
	list := func(of ...string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for i := 0; i < len(of); i += 2 {
			out[corev1.ResourceName(of[i])] = resource.MustParse(of[i+1])
		}
		return out
	}
	halves := map[string]v1alpha1.VariantResources{"c": {
		Limits: map[corev1.ResourceName]string{"memory": "quantity('512Mi')"}}}
	patch := json.RawMessage(`{"spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "512Mi"}}}]}}`)
	takes := json.RawMessage(`{"spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": null}}}]}}`)
	for name, c := range map[string]struct {
		v                    Variant
		template, made, want corev1.ResourceRequirements
	}{
		"a request by its limit": {Variant{Resources: halves}, corev1.ResourceRequirements{Limits: list("memory", "1Gi")},
			corev1.ResourceRequirements{Limits: list("memory", "1Gi"), Requests: list("memory", "1Gi")},
			corev1.ResourceRequirements{Limits: list("memory", "512Mi")}},
		"a patch": {Variant{Patch: patch}, corev1.ResourceRequirements{Limits: list("memory", "1Gi")},
			corev1.ResourceRequirements{Limits: list("memory", "1Gi"), Requests: list("memory", "1Gi")},
			corev1.ResourceRequirements{Limits: list("memory", "512Mi")}},
		"a limit goes": {Variant{Patch: takes}, corev1.ResourceRequirements{Limits: list("memory", "1Gi")},
			corev1.ResourceRequirements{Limits: list("memory", "1Gi"), Requests: list("memory", "1Gi")},
			corev1.ResourceRequirements{}},
		"by a LimitRange": {Variant{Resources: halves}, corev1.ResourceRequirements{},
			corev1.ResourceRequirements{Limits: list("memory", "2Gi", "cpu", "1"), Requests: list("memory", "1Gi", "cpu", "1")},
			corev1.ResourceRequirements{Limits: list("memory", "512Mi", "cpu", "1"), Requests: list("cpu", "1")}},
		"what the template says stays": {Variant{Resources: halves},
			corev1.ResourceRequirements{Limits: list("memory", "1Gi"), Requests: list("memory", "64Mi")},
			corev1.ResourceRequirements{Limits: list("memory", "1Gi"), Requests: list("memory", "96Mi")},
			corev1.ResourceRequirements{Limits: list("memory", "512Mi"), Requests: list("memory", "96Mi")}},
	} {
		of := &corev1.PodTemplateSpec{}
		of.Spec.Containers = []corev1.Container{{Name: "c", Resources: c.template}}
		c.v.Name = "v"
		o := must(t, c.v).On(of).Of(node(nil, 4, 1))
		pod := of.DeepCopy()
		pod.Spec.Containers[0].Resources = c.made
		_, spec, err := o.Apply(nil, asJSON(t, &pod.Spec))
		if o.Err != nil || err != nil {
			t.Fatal(o.Err, err)
		}
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		var got corev1.PodSpec
		err = json.Unmarshal(text, &got)
		if is := got.Containers[0].Resources; err != nil || !apiequality.Semantic.DeepEqual(is, c.want) {
			t.Errorf("%s: it has %v (%v), want %v", name, is, err, c.want)
		}
	}
}

// What admission has worked out from a field of the template is worked out again where the patch changes that field: by
// what was there before the API would refuse the pod, or its images would be pulled with another account's secrets.
func TestWhatFollowsFromOtherFields(t *testing.T) {
	const made = `{"priorityClassName": "low", "priority": 10, "preemptionPolicy": "Never", "serviceAccountName": "agent",
		"imagePullSecrets": [{"name": "agents"}], "runtimeClassName": "small", "overhead": {"memory": "1Mi"}}`
	for name, c := range map[string]struct {
		patch string
		goes  []string
	}{
		"another class": {`{"priorityClassName": "high"}`, []string{"priority", "preemptionPolicy"}},
		"no class":      {`{"priorityClassName": null}`, []string{"priority", "preemptionPolicy"}},
		"another class, and a policy": {`{"priorityClassName": "high", "preemptionPolicy": "Never"}`,
			[]string{"priority"}},
		"another account": {`{"serviceAccountName": "large"}`, []string{"imagePullSecrets"}},
		"another account, and secrets": {`{"serviceAccountName": "large", "imagePullSecrets": [{"name": "more"}]}`,
			nil},
		"another runtime": {`{"runtimeClassName": "large"}`, []string{"overhead"}},
		"nothing of it":   {`{"hostPID": true, "priorityClassName": "low"}`, nil},
	} {
		of := &corev1.PodTemplateSpec{}
		of.Spec.PriorityClassName, of.Spec.ServiceAccountName, of.Spec.RuntimeClassName = "low", "agent", ptr.To("small")
		o := must(t, Variant{Name: "v", Patch: json.RawMessage(`{"spec": ` + c.patch + `}`)}).On(of).Of(node(nil, 4, 1))
		before, err := decode[map[string]any]([]byte(made))
		if err != nil {
			t.Fatal(err)
		}
		_, after, err := o.Apply(nil, before)
		if o.Err != nil || err != nil {
			t.Fatal(o.Err, err)
		}
		mark, err := o.TextFor("agent-")
		if err != nil {
			t.Fatal(err)
		}
		_, again, err := o.Apply(map[string]any{Annotation: mark}, before)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"priority", "preemptionPolicy", "imagePullSecrets", "overhead"} {
			if _, stays := after[field]; stays == slices.Contains(c.goes, field) {
				t.Errorf("%s: %s stays: %v", name, field, stays)
			}
			if _, stays := again[field]; !stays {
				t.Errorf("%s: asked again, %s goes that was found by the variant", name, field)
			}
		}
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
