package beside

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/change/history"
)

// complete is a DaemonSet that was taken over, with a strategy kept beside it, and the revision of its template.
func complete(t *testing.T, name, kept string) (*appsv1.DaemonSet, *appsv1.ControllerRevision) {
	t.Helper()
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		UID:         types.UID("uid of " + name),
		Annotations: map[string]string{admit.UpdateStrategy: kept}}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	plan, err := history.Compute(history.Input{Owner: history.OfDaemonSet(ds), Normalize: noDefaults})
	if err != nil || plan.Create == nil {
		t.Fatalf("the revision is %+v (%v)", plan, err)
	}
	r := plan.Create.DeepCopy()
	r.Namespace = "default"
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: name, UID: ds.UID,
		Controller: ptr.To(true)}}
	return ds, r
}

func noDefaults(*corev1.PodTemplateSpec) {}

// leaves runs what gives everything back; the time that it waits passes at once.
func leaves(t *testing.T, client *fake.Clientset, keep ...string) (said string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &Leaver{client: client, Keep: keep, Normalize: noDefaults, Out: &out,
			Options: Options{Namespace: "kube-system", Secret: "everynode-webhook"}}
		err = l.leave(t.Context())
		said = out.String()
	})
	return said, err
}

// TestLeavingRefusesWhatCannotBeGivenBack: where nobody can say what the author of one DaemonSet wrote, nothing of the
// others changes either, and somebody may choose that it stays as it is.
func TestLeavingRefusesWhatCannotBeGivenBack(t *testing.T) {
	for _, kept := range []string{"", "{", `{"type":"Later"}`,
		`{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"few"}}`,
		`{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":-1}}`,
		`{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"101%"}}`,
		`{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":0,"maxSurge":0}}`,
		`{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1,"maxSurge":"1%"}}`} {
		good, ofGood := complete(t, "good", `{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"20%","maxSurge":0}}`)
		bad, ofBad := complete(t, "junk", kept)
		client := fake.NewClientset(good, ofGood, bad, ofBad)
		said, err := leaves(t, client)
		if err == nil || !strings.Contains(said, "default/junk") || !strings.Contains(said, admit.UpdateStrategy) {
			t.Errorf("with %q it says %q (%v)", kept, said, err)
		}
		for _, a := range client.Actions() {
			if verb := a.GetVerb(); verb != "list" && verb != "get" {
				t.Errorf("with %q it was refused, and did %s %s", kept, verb, a.GetResource().Resource)
			}
		}
		said, err = leaves(t, client, "default/junk")
		if err != nil || !strings.Contains(said, "1 DaemonSets are given back, and 1 stay OnDelete") {
			t.Errorf("with %q, kept by choice, it says %q (%v)", kept, said, err)
		}
		is, err := client.AppsV1().DaemonSets("default").Get(t.Context(), "good", metav1.GetOptions{})
		if err != nil || admit.Taken(is) || is.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String() != "20%" {
			t.Errorf("the other one is %+v (%v)", is, err)
		}
	}
}

// TestLeavingTakesNotesOffPods: what changes remembered on daemons' pods goes, and nothing else of these. An account
// that may not change pods leaves all the same.
func TestLeavingTakesNotesOffPods(t *testing.T) {
	for _, forbidden := range []bool{false, true} {
		noted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs-x", UID: "x"}}
		noted.Annotations = map[string]string{"everynode.io/fetched-images": "{}",
			"everynode.io/first-node": "2026-08-01T12:00:00Z logs-x", "theirs": "stays"}
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}}
		client := fake.NewClientset(noted, other)
		patched := ""
		client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			patched += a.(clienttesting.PatchAction).GetName()
			return forbidden, nil, apierrors.NewForbidden(corev1.Resource("pods"), "logs-x", nil)
		})
		said, err := leaves(t, client)
		if err != nil || patched != "logs-x" || strings.Contains(said, "stay on pods") != forbidden {
			t.Errorf("forbidden %v: patched are %s, and it says %q (%v)", forbidden, patched, said, err)
		}
		left, err := client.CoreV1().Pods("default").Get(t.Context(), "logs-x", metav1.GetOptions{})
		if err != nil || left.Annotations["theirs"] != "stays" || len(left.Annotations) > 1 != forbidden {
			t.Errorf("forbidden %v: its annotations are %v (%v)", forbidden, left.Annotations, err)
		}
	}
}

// TestLeavingEndsFetches: pods that fetch images go, and no others.
func TestLeavingEndsFetches(t *testing.T) {
	fetches := (&fetchpod.Order{Namespace: "default", Owner: "logs", Daemon: "logs-x", DaemonUID: "u", Node: "n",
		Revision: "b", Spec: &corev1.PodSpec{Containers: []corev1.Container{{Image: "agent:2"}}}}).Pod()
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other",
		Labels: map[string]string{fetchpod.Label: "u"}}}
	client := fake.NewClientset(fetches, other)
	said, err := leaves(t, client)
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	left, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != "other" {
		t.Errorf("pods are left: %v (%v)", left.Items, err)
	}
}
