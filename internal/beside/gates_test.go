package beside

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/beside/gates"
	"github.com/everynode/everynode/internal/change/pinning"
)

// waiter is a pod of a DaemonSet, or of none, that waits behind the gate.
func waiter(name string, of types.UID) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"},
		Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: pinning.Gate}}}}
	if of != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: of, Controller: ptr.To(true)}}
	}
	return p
}

// TestWhoIsLookedAtForItsPods: DaemonSets with a pod that waits, or was let through and has pulled nothing; any pod of
// these is news.
func TestWhoIsLookedAtForItsPods(t *testing.T) {
	w := waiting{pods: map[types.UID]*corev1.Pod{}, sets: map[types.UID]int{}}
	other := waiter("other", "1")
	other.Spec.SchedulingGates = nil
	sets := func(what string, news bool, want ...types.UID) {
		t.Helper()
		got, _ := w.of()
		for _, uid := range want {
			if got[uid] == 0 {
				t.Errorf("%s: %s is not looked at", what, uid)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v are looked at", what, got)
		}
		if is := w.set(other); is != news {
			t.Errorf("%s: another pod is news: %t", what, is)
		}
	}
	sets("at first", false)
	p := waiter("one", "1")
	if !w.set(p) {
		t.Error("a pod that waits is no news")
	}
	w.set(p)
	sets("one waits", true, "1")
	p = p.DeepCopy()
	p.Spec.SchedulingGates, p.Annotations = nil, map[string]string{pinning.Annotation: pinning.Mark(time.Now(), p.Name)}
	w.set(p)
	sets("it was let through", true, "1")
	p = p.DeepCopy()
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{ImageID: "demo@sha256:1"}}
	w.set(p)
	sets("it has pulled", false)
	w.set(waiter("two", "2"))
	w.set(waiter("three", "2"))
	w.gone(waiter("two", "2"))
	sets("one of two is gone", false, "2")
	if w.gone(waiter("three", "2")) {
		t.Error("the last one's end is news")
	}
	sets("all are gone", false)
	w.set(waiter("orphan", ""))
	if _, alone := w.of(); len(alone) != 1 {
		t.Errorf("%d pods are of nobody", len(alone))
	}
}

// TestLeavingHasNobodyWait: pods that wait are deleted, also those that come meanwhile, and an orphan is let through.
// Whoever has changed a pod since decides.
func TestLeavingHasNobodyWait(t *testing.T) {
	running := waiter("running", "1")
	running.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "others.example.com/gate"}}
	written := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "3"}}
	written.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: pinning.Gate}} // its pods have it again and again
	client := fake.NewClientset(waiter("one", "1"), waiter("orphan", ""), running, written, waiter("three", "3"))
	again := false
	client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if o := a.(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions; o == nil || *o.ResourceVersion != "7" || o.UID == nil {
			t.Errorf("it deletes whatever is there by then: %+v", o)
		}
		if again {
			return false, nil, nil
		}
		again = true // the webhook was asked once more
		return false, nil, client.Tracker().Add(waiter("two", "1"))
	})
	var out bytes.Buffer
	l := &Leaver{client: client, Out: &out}
	err := l.openGates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for i := range list.Items {
		left = append(left, fmt.Sprint(list.Items[i].Name, " ", pinning.IsGated(&list.Items[i].Spec)))
	}
	slices.Sort(left)
	if got := strings.Join(left, ", "); got != "orphan false, running false, three true" {
		t.Errorf("there are %s", got)
	}
	if !strings.Contains(out.String(), "2 pods waited") || !strings.Contains(out.String(), "1 pods waited") {
		t.Errorf("it says %s", &out)
	}
}

// TestWhatHasChangedIsLeftAlone: the next look knows more; all other errors are told.
func TestWhatHasChangedIsLeftAlone(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		err  error
		told bool
	}{
		{apierrors.NewConflict(pods, "one", errors.New("it has changed")), false}, {apierrors.NewNotFound(pods, "one"), false},
		{apierrors.NewForbidden(pods, "one", errors.New("no")), true},
	} {
		client := fake.NewClientset(waiter("one", "1"))
		client.PrependReactor("*", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
		for _, err := range []error{open(t.Context(), client, waiter("one", "1")), remake(t.Context(), client, waiter("one", "1"))} {
			if (err != nil) != c.told {
				t.Errorf("%v becomes %v", c.err, err)
			}
		}
	}
}

// TestAnotherDaemonSetsPodsAreNotOurs, though its labels fit.
func TestAnotherDaemonSetsPodsAreNotOurs(t *testing.T) {
	client := fake.NewClientset(waiter("ours", "1"), waiter("theirs", "2"), waiter("orphan", ""))
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "1"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{}}}
	live, err := selectedPods(t.Context(), client, ds)
	got := podsOf(ds, live)
	if err != nil || len(got) != 1 || got[0].Name != "ours" {
		t.Errorf("they are %v (%v)", got, err)
	}
}

// TestRightsOfAReleaseBefore are told, and looked at again.
func TestRightsOfAReleaseBefore(t *testing.T) {
	var is authorizationv1.SubjectAccessReviewStatus
	var fails error
	asked := authorizationv1.ResourceAttributes{}
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
		asked, review.Status = *review.Spec.ResourceAttributes, is
		return true, review, fails
	})
	g := newGuest(t, client)
	for _, c := range []struct {
		allowed, waits bool
		fails          error
	}{{true, true, nil}, {false, false, nil}, {true, false, errors.New("no answer")}, {true, true, nil}, {false, true, errors.New("no answer")}} {
		is.Allowed, fails = c.allowed, c.fails
		g.lookAtRights(t.Context())
		if got := g.webhook.LetsPodsWait(); got != c.waits {
			t.Errorf("allowed: %t (%v): pods wait: %t", c.allowed, c.fails, got)
		}
	}
	if asked.Verb != "patch" || asked.Resource != "pods" || asked.Namespace != "" {
		t.Errorf("it asks about %+v", asked)
	}
}

// TestNobodyAskedHoldsDeletionsAlone: a pod that may ask is let through all the same.
func TestNobodyAskedHoldsDeletionsAlone(t *testing.T) {
	client := fake.NewClientset(waiter("one", "1"), waiter("two", "1"))
	g := newGuest(t, client)
	g.looked = make(chan struct{})
	close(g.looked)
	client.PrependReactor("patch", "daemonsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		waits := &appsv1.DaemonSet{}
		waits.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		return true, waits, nil
	})
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "1"}}
	due := []gates.Move{{Pod: waiter("one", "1"), Deed: gates.Open}, {Pod: waiter("two", "1"), Deed: gates.Remake}}
	err := g.carryOut(t.Context(), &onePod{sets: []types.UID{ds.UID}}, ds, due, true)
	if !errors.Is(err, errNotAsked) {
		t.Errorf("what was not done is told as %v", err)
	}
	for name, waits := range map[string]bool{"one": false, "two": true} {
		p, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || pinning.IsGated(&p.Spec) != waits {
			t.Errorf("pod %s is %+v (%v)", name, p, err)
		}
	}
}

// unread is a cache that cannot be read.
type unread struct{ client.Reader }

var errUnread = errors.New("the cache cannot be read")

func (unread) List(context.Context, client.ObjectList, ...client.ListOption) error { return errUnread }

// TestGatesDoNotWaitForTheCertificate: pods that wait are looked at where its Secret cannot be read, too.
func TestGatesDoNotWaitForTheCertificate(t *testing.T) {
	api := fake.NewClientset()
	noSecret := errors.New("no Secret today")
	api.PrependReactor("*", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, noSecret })
	g := newGuest(t, api)
	g.waiting = waiting{pods: map[types.UID]*corev1.Pod{}, sets: map[types.UID]int{"1": 1}}
	g.webhook.Use(&tls.Certificate{}, time.Now())
	err := g.turn(t.Context(), unread{})
	if !errors.Is(err, noSecret) || !errors.Is(err, errUnread) {
		t.Errorf("it tells %v, want both what became of the Secret and of the pods", err)
	}
}
