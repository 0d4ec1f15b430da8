package daemonset

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func podUIDs(a *fakeAPI) map[types.UID]string {
	out := map[types.UID]string{}
	for _, p := range list[*corev1.Pod](a, kindPod) {
		out[p.UID] = p.Spec.NodeName
	}
	return out
}

// orphan removes a DaemonSet and leaves its pods and revisions, as
// `kubectl delete --cascade=orphan` does.
func orphan(t *testing.T, a *fakeAPI, name string) {
	t.Helper()
	now := metav1.Now()
	edit(t, a, "default", name, func(ds *appsv1.DaemonSet) { ds.DeletionTimestamp = &now; ds.Generation++ })
	for _, p := range list[*corev1.Pod](a, kindPod) {
		edit(t, a, p.Namespace, p.Name, func(p *corev1.Pod) { p.OwnerReferences = nil })
	}
	for _, r := range list[*appsv1.ControllerRevision](a, kindRevision) {
		edit(t, a, r.Namespace, r.Name, func(r *appsv1.ControllerRevision) { r.OwnerReferences = nil })
	}
	a.erase(kindDaemonSet, "default", name)
}

// A DaemonSet with the selector and template of orphaned pods takes them over
// without restarting one.
func TestAdoptsWithoutRestart(t *testing.T) {
	a := newFakeAPI(t)
	for i := range 5 {
		a.add(testNode(fmt.Sprintf("n%d", i)))
	}
	runController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 5)
	before := podUIDs(a)
	orphan(t, a, "logs")

	heir := testDaemonSet("logs")
	heir.Name = "heir"
	ds := a.add(heir)
	settled(t, a, "heir", 5)
	eventually(t, func() string {
		for _, p := range list[*corev1.Pod](a, kindPod) {
			if ownerOf(p) != ds.GetUID() {
				return "pod " + p.Name + " is not adopted"
			}
		}
		return ""
	})
	if after := podUIDs(a); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pods were %v, are %v", before, after)
	}
	revisions := list[*appsv1.ControllerRevision](a, kindRevision)
	if len(revisions) != 1 || ownerOf(revisions[0]) != ds.GetUID() || revisions[0].Revision != 1 {
		t.Errorf("revisions are %v", revisions)
	}
}

// Adopted pods of another template are rolled although their deprecated template
// generation equals the new DaemonSet's: the revision decides.
func TestAdoptedPodsAreJudgedByRevision(t *testing.T) {
	a := newFakeAPI(t)
	for i := range 3 {
		a.add(testNode(fmt.Sprintf("n%d", i)))
	}
	runController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 3)
	orphan(t, a, "logs")

	heir := testDaemonSet("logs")
	heir.Spec.Template.Spec.Containers[0].Image = "demo:v2"
	a.add(heir)
	settled(t, a, "logs", 3)
	if got := images(a); got["demo:v2"] != 3 {
		t.Errorf("images are %v, want demo:v2 three times", got)
	}
}

// A pod whose labels no longer match is let go and replaced.
func TestReleases(t *testing.T) {
	a := newFakeAPI(t)
	a.add(testNode("n1"))
	runController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 1)
	first := list[*corev1.Pod](a, kindPod)[0]
	edit(t, a, "default", first.Name, func(p *corev1.Pod) { p.Labels["app"] = "debug" })
	eventually(t, func() string {
		pods := list[*corev1.Pod](a, kindPod)
		for _, p := range pods {
			if p.UID == first.UID && len(p.OwnerReferences) > 0 {
				return "the pod still has an owner"
			}
		}
		if len(pods) != 2 {
			return fmt.Sprintf("there are %d pods", len(pods))
		}
		return ""
	})
	settled(t, a, "logs", 1)
}

// While a DaemonSet is being deleted its pods are not replaced.
func TestDoesNothingWhileDeleted(t *testing.T) {
	a := newFakeAPI(t)
	a.add(testNode("n1"))
	runController(t, a)
	a.add(testDaemonSet("logs"))
	a.add(testDaemonSet("witness"))
	settled(t, a, "logs", 1)
	settled(t, a, "witness", 1)
	now := metav1.Now()
	edit(t, a, "default", "logs", func(ds *appsv1.DaemonSet) {
		ds.DeletionTimestamp, ds.Finalizers = &now, []string{metav1.FinalizerDeleteDependents}
		ds.Generation++
	})
	for _, p := range list[*corev1.Pod](a, kindPod) {
		if strings.HasPrefix(p.Name, "logs-") {
			a.erase(kindPod, p.Namespace, p.Name)
		}
	}
	// The witness is worked on after logs, so by then logs would have acted.
	setImage(t, a, "witness", "demo:v2")
	settled(t, a, "witness", 1)
	for _, p := range list[*corev1.Pod](a, kindPod) {
		if strings.HasPrefix(p.Name, "logs-") {
			t.Errorf("pod %s was created for a DaemonSet that is being deleted", p.Name)
		}
	}
}

// A DaemonSet that takes the name of a deleted one is another: pods that the dead
// one still owns are left to the garbage collector.
func TestTheSameNameIsNotTheSameDaemonSet(t *testing.T) {
	a := newFakeAPI(t)
	a.add(testNode("n1"))
	runController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 1)
	old := list[*corev1.Pod](a, kindPod)[0]
	a.erase(kindDaemonSet, "default", "logs")
	heir := a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 1)
	owners := map[types.UID]types.UID{}
	for _, p := range list[*corev1.Pod](a, kindPod) {
		owners[p.UID] = ownerOf(p)
	}
	if len(owners) != 2 || owners[old.UID] != ownerOf(old) {
		t.Fatalf("owners of pods are %v, want the old pod untouched and a new one", owners)
	}
	for uid, owner := range owners {
		if uid != old.UID && owner != heir.GetUID() {
			t.Errorf("the new pod is owned by %s, want %s", owner, heir.GetUID())
		}
	}
}
