package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func daemonSet(image string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs", UID: "uid-1", Annotations: map[string]string{"kubernetes.io/change-cause": "because"}},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "logs"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image,
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}},
		}},
	}
}

func patchOf(t *testing.T, image string) []byte {
	t.Helper()
	patch, err := Patch(&daemonSet(image).Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

func revision(name string, number int64, raw []byte) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-" + "x", Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "hash-" + name}},
		Data:       runtime.RawExtension{Raw: raw}, Revision: number,
	}
}

func names(revisions []*appsv1.ControllerRevision) []string {
	out := []string{}
	for _, r := range revisions {
		out = append(out, r.Name)
	}
	return out
}

func TestPatch(t *testing.T) {
	want := `{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"logs"}},` +
		`"spec":{"containers":[{"image":"demo:v1","name":"c","resources":{"requests":{"cpu":"1"}}}]}}}}`
	if got := string(patchOf(t, "demo:v1")); got != want {
		t.Errorf("patch is\n%s, want\n%s", got, want)
	}
}

func TestFirstRevision(t *testing.T) {
	plan, err := Compute(Input{Owner: OfDaemonSet(daemonSet("demo:v1"))})
	if err != nil {
		t.Fatal(err)
	}
	r := plan.Create
	if r == nil || plan.Current != nil || plan.Settled() {
		t.Fatalf("plan is %+v, want one revision created", plan)
	}
	hash := r.Labels[appsv1.ControllerRevisionHashLabelKey]
	if r.Name != "logs-"+hash || r.Revision != 1 || r.Labels["app"] != "logs" || r.Annotations["kubernetes.io/change-cause"] != "because" {
		t.Errorf("the revision is %+v", r)
	}
	if ref := metav1.GetControllerOf(r); ref == nil || ref.UID != "uid-1" || ref.Kind != "DaemonSet" {
		t.Errorf("the revision's controller is %v", ref)
	}
}

func TestCompute(t *testing.T) {
	v1, v2, v3 := patchOf(t, "demo:v1"), patchOf(t, "demo:v2"), patchOf(t, "demo:v3")
	// The same template as v1, written by another version: other order, an
	// empty value spelled out, another notation of the same quantity.
	v1Otherwise := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"demo:v1","command":null,` +
		`"resources":{"requests":{"cpu":"1000m"}}}]},"metadata":{"creationTimestamp":null,"labels":{"app":"logs"}},"$patch":"replace"}}}`)
	unlabelled := revision("a", 1, v1)
	unlabelled.Labels = nil
	tests := []struct {
		name       string
		revisions  []*appsv1.ControllerRevision
		current    string
		create     int64
		renumber   int64
		duplicates []string
		old        []string
		label      []string
	}{
		{name: "nothing to do", revisions: []*appsv1.ControllerRevision{revision("a", 1, v1)}, current: "a"},
		{name: "a new template", revisions: []*appsv1.ControllerRevision{revision("b", 2, v2), revision("c", 5, v3)},
			create: 6, old: []string{"b", "c"}},
		{name: "back to an older template", revisions: []*appsv1.ControllerRevision{revision("a", 1, v1), revision("b", 2, v2)},
			current: "a", renumber: 3, old: []string{"b"}},
		{name: "the same template in other words", revisions: []*appsv1.ControllerRevision{revision("a", 4, v1Otherwise), revision("b", 2, v2)},
			current: "a", old: []string{"b"}},
		{name: "duplicates: the highest number stays", revisions: []*appsv1.ControllerRevision{revision("x", 3, v1), revision("a", 7, v1Otherwise), revision("y", 1, v1), revision("b", 2, v2)},
			current: "a", duplicates: []string{"y", "x"}, old: []string{"b"}},
		{name: "the hash label is missing", revisions: []*appsv1.ControllerRevision{unlabelled}, current: "a", label: []string{"a"}},
		{name: "one that cannot be read is old", revisions: []*appsv1.ControllerRevision{revision("bad", 9, []byte(`"x"`)), revision("a", 10, v1)},
			current: "a", old: []string{"bad"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := Compute(Input{Owner: OfDaemonSet(daemonSet("demo:v1")), Revisions: tc.revisions})
			if err != nil {
				t.Fatal(err)
			}
			var current string
			var create int64
			if plan.Current != nil {
				current = plan.Current.Name
			}
			if plan.Create != nil {
				create = plan.Create.Revision
			}
			got := fmt.Sprint(current, create, plan.Renumber, names(plan.Duplicates), names(plan.Old), names(plan.Label))
			want := fmt.Sprint(tc.current, tc.create, tc.renumber, append([]string{}, tc.duplicates...), append([]string{}, tc.old...), append([]string{}, tc.label...))
			if got != want {
				t.Errorf("current, create, renumber, duplicates, old, label are\n%s, want\n%s", got, want)
			}
		})
	}
}

// A default that did not exist when the revision was written is no difference.
func TestDefaultsAreNoDifference(t *testing.T) {
	ds := daemonSet("demo:v1")
	old := revision("a", 1, patchOf(t, "demo:v1"))
	ds.Spec.Template.Spec.DNSPolicy = corev1.DNSClusterFirst
	normalize := func(t *corev1.PodTemplateSpec) {
		if t.Spec.DNSPolicy == "" {
			t.Spec.DNSPolicy = corev1.DNSClusterFirst
		}
	}
	for _, tc := range []struct {
		normalize func(*corev1.PodTemplateSpec)
		same      bool
	}{{nil, false}, {normalize, true}} {
		plan, err := Compute(Input{Owner: OfDaemonSet(ds), Revisions: []*appsv1.ControllerRevision{old}, Normalize: tc.normalize})
		if err != nil {
			t.Fatal(err)
		}
		if same := plan.Current != nil; same != tc.same {
			t.Errorf("with defaulting %v the revision is taken for the same: %v", tc.normalize != nil, same)
		}
	}
}

func TestCleanup(t *testing.T) {
	var old []*appsv1.ControllerRevision
	for i, name := range []string{"c", "a", "d", "b", "e"} {
		old = append(old, revision(name, map[string]int64{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}[name], []byte(fmt.Sprint(i))))
	}
	tests := []struct {
		name  string
		limit int
		live  []string
		want  []string
	}{
		{"within the limit", 5, nil, []string{}},
		{"the oldest go", 3, nil, []string{"a", "b"}},
		{"a live one is passed over", 3, []string{"hash-a"}, []string{"b", "c"}},
		{"live ones stay beyond the limit", 0, []string{"hash-a", "hash-c"}, []string{"b", "d", "e"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := names(Cleanup(old, tc.limit, func(hash string) bool { return slices.Contains(tc.live, hash) }))
			if !slices.Equal(got, tc.want) {
				t.Errorf("deleted are %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNameFits(t *testing.T) {
	if n := len(Name(strings.Repeat("a", 253), "bcdfghjklm")); n > 253 {
		t.Errorf("a long name has %d characters", n)
	}
}
