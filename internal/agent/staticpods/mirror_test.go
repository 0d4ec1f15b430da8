package staticpods

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

func TestPlan(t *testing.T) {
	static := func(name, image string) *corev1.Pod {
		t.Helper()
		pod, err := Parse([]byte(manifest(name, image)), "/m/"+name, "n1")
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	mirror := func(pod *corev1.Pod) *corev1.Pod {
		m := Mirror(pod, "node-uid")
		m.UID = types.UID("api-" + pod.Name)
		return m
	}
	deleted := func(pod *corev1.Pod) *corev1.Pod {
		pod.DeletionTimestamp = &metav1.Time{}
		return pod
	}
	a, old := static("a", "i:2"), static("a", "i:1")
	ordinary := mirror(a)
	delete(ordinary.Annotations, mirrorAnnotation)
	for name, c := range map[string]struct {
		running, found []*corev1.Pod
		want           []string
	}{
		"new":     {[]*corev1.Pod{a}, nil, []string{"create default/a-n1 (the API does not show it)"}},
		"in line": {[]*corev1.Pod{a}, []*corev1.Pod{mirror(a)}, nil},
		"file gone": {nil, []*corev1.Pod{mirror(a)},
			[]string{"delete default/a-n1 (its static pod is not here)"}},
		"file edited": {[]*corev1.Pod{a}, []*corev1.Pod{mirror(old)},
			[]string{"delete default/a-n1 (it shows an earlier static pod)"}},
		"mirror deleted": {[]*corev1.Pod{a}, []*corev1.Pod{deleted(mirror(a))},
			[]string{"delete default/a-n1 (somebody asked for it, and it runs nowhere)"}},
		"somebody else's pod, same name": {[]*corev1.Pod{a}, []*corev1.Pod{ordinary}, nil},
		"ordinary pods":                  {nil, []*corev1.Pod{ordinary}, nil},
	} {
		var got []string
		for _, step := range Plan(c.running, c.found) {
			got = append(got, step.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestMirrorShowsThePod(t *testing.T) {
	pod, err := Parse([]byte(plain), "/m/web", "n1")
	if err != nil {
		t.Fatal(err)
	}
	m := Mirror(pod, "node-uid")
	if !podfacts.IsMirror(m) || podfacts.IsMirror(pod) || !Mirrors(m, pod) {
		t.Error("the mirror is not recognized")
	}
	if m.UID != "" || len(m.OwnerReferences) != 1 || m.OwnerReferences[0].Name != "n1" ||
		m.OwnerReferences[0].UID != "node-uid" {
		t.Errorf("UID %q, owners %v", m.UID, m.OwnerReferences)
	}
}
