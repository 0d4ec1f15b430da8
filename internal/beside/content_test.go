package beside

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// TestTheStableTemplateIsKeptWhereContentIsAPartOfRevisions: the copy of a revision is that of its template, and an
// earlier one goes.
func TestTheStableTemplateIsKeptWhereContentIsAPartOfRevisions(t *testing.T) {
	const id = ".aaaaaaaaaaaaaaaaaaaaaaaa"
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "1",
		Annotations: map[string]string{admit.UpdateStrategy: `{"type":"RollingUpdate"}`}}}
	hashed := func(name, hash string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name),
			Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: hash, rollouts.OwnerLabel: "1"}}}
	}
	copied := hashed("everynode-agent-older", "older")
	s := &seen{
		rollouts: map[types.NamespacedName]*v1alpha1.DaemonSetRollout{{Namespace: "default", Name: "agent"}: {
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "r", Labels: map[string]string{rollouts.OwnerLabel: "1"}},
			Status:     v1alpha1.DaemonSetRolloutStatus{StableRevision: "old" + id, TargetRevision: "new" + id},
		}},
		revisions: map[types.UID][]*appsv1.ControllerRevision{"1": {hashed("agent-old", "old"), hashed("agent-new", "new")}},
		copies:    map[types.UID][]*appsv1.ControllerRevision{"1": {copied, hashed("everynode-agent-new", "new")}},
	}
	client := fake.NewClientset(copied.DeepCopy())
	err := newGuest(t, client).keepStable(t.Context(), s, ds)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.AppsV1().ControllerRevisions("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range list.Items {
		names = append(names, r.Name)
	}
	if fmt.Sprint(names) != "[everynode-agent-old]" {
		t.Errorf("there are %v", names)
	}
}

// TestPodsAreCountedByTheirContent too.
func TestPodsAreCountedByTheirContent(t *testing.T) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "1"}}
	var pods []corev1.Pod
	for _, revision := range []string{"h", "h.aaaaaaaaaaaaaaaaaaaaaaaa", "h.aaaaaaaaaaaaaaaaaaaaaaaa", "g.bbbbbbbbbbbbbbbbbbbbbbbb"} {
		pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: content.TemplateOf(revision), content.RevisionLabel: revision},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "1",
				Controller: ptr.To(true)}},
		}})
	}
	_, of, err := census(ds, nil, pods, func(*corev1.PodTemplateSpec) {})
	if want := "map[g.bbbbbbbbbbbbbbbbbbbbbbbb:1 h:1 h.aaaaaaaaaaaaaaaaaaaaaaaa:2]"; err != nil || fmt.Sprint(of) != want {
		t.Errorf("there are %v, want %s (%v)", of, want, err)
	}
}
