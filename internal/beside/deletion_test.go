package beside

import (
	"context"
	"errors"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/beside/admit"
)

// onePod is a cache with a pod in it, or none, and DaemonSets by which is tried whether anybody is asked: those with
// these UIDs, or one that has none.
type onePod struct {
	client.Reader
	is   *corev1.Pod
	sets []types.UID
}

// Get implements client.Reader.
func (o *onePod) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if o.is == nil {
		return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}
	o.is.DeepCopyInto(into.(*corev1.Pod))
	return nil
}

// List implements client.Reader.
func (o *onePod) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	sets := o.sets
	if len(sets) == 0 {
		sets = []types.UID{""}
	}
	for _, uid := range sets {
		is := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent" + string(uid), UID: uid,
			Annotations: map[string]string{admit.UpdateStrategy: `{"type":"RollingUpdate"}`}}}
		list := into.(*appsv1.DaemonSetList)
		list.Items = append(list.Items, is)
	}
	return nil
}

func versioned(uid, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent-1", UID: types.UID(uid),
		ResourceVersion: version}}
}

// TestAPodIsDeletedAsItWasSeen, or not at all: what has become of it since may count for a limit.
func TestAPodIsDeletedAsItWasSeen(t *testing.T) {
	const changed = http.StatusPreconditionFailed
	for name, c := range map[string]struct {
		seen, stored *corev1.Pod
		// meanwhile is what the cache has after the trial; where it is nil, what it had before.
		meanwhile *corev1.Pod
		left      bool
		code      int32
	}{
		"as it was seen":               {versioned("1", "7"), versioned("1", "7"), nil, false, 0},
		"it is ready by now":           {versioned("1", "7"), versioned("1", "8"), nil, true, changed},
		"it changes during the trial":  {versioned("1", "7"), versioned("1", "8"), versioned("1", "8"), true, changed},
		"it is another":                {versioned("1", "7"), versioned("2", "9"), nil, true, http.StatusConflict},
		"it has gone":                  {versioned("1", "7"), nil, nil, false, http.StatusNotFound},
		"it has gone from the cache":   {nil, nil, nil, false, http.StatusNotFound},
		"another is in the cache":      {versioned("2", "9"), versioned("2", "9"), nil, true, http.StatusConflict},
		"the cache is behind for long": {versioned("1", "3"), versioned("1", "8"), versioned("1", "4"), true, changed},
	} {
		api, cache := fake.NewClientset(), &onePod{is: c.seen}
		if c.stored != nil {
			api = fake.NewClientset(c.stored)
		}
		api.PrependReactor("patch", "daemonsets", func(clienttesting.Action) (bool, runtime.Object, error) {
			if c.meanwhile != nil {
				cache.is = c.meanwhile
			}
			return true, &appsv1.DaemonSet{}, nil
		})
		api.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			want := a.(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
			if c.stored != nil && (*want.UID != c.stored.UID || *want.ResourceVersion != c.stored.ResourceVersion) {
				return true, nil, apierrors.NewConflict(corev1.Resource("pods"), "agent-1", errors.New("the precondition failed"))
			}
			return false, nil, nil
		})
		g := newGuest(t, api)
		g.looked = make(chan struct{})
		close(g.looked)
		err := g.DeletePod(t.Context(), api, cache, types.NamespacedName{Namespace: "default", Name: "agent-1"}, "1")
		var status apierrors.APIStatus
		code := int32(0)
		if errors.As(err, &status) {
			code = status.Status().Code
		}
		if code != c.code || (err == nil) != (c.code == 0) {
			t.Errorf("%s: it tells %v, want the code %d", name, err, c.code)
		}
		_, err = api.CoreV1().Pods("default").Get(t.Context(), "agent-1", metav1.GetOptions{})
		if left := err == nil; left != c.left {
			t.Errorf("%s: the pod is left: %v", name, left)
		}
	}
}

// TestAPodIsDeletedByATryOfItsOwnDaemonSet: of two in a namespace the webhook may be able to answer for one alone, such
// as while the rollout of the other one cannot be read. Whichever is looked at first, that one goes on.
func TestAPodIsDeletedByATryOfItsOwnDaemonSet(t *testing.T) {
	for _, sets := range [][]types.UID{{"1", "2"}, {"2", "1"}} {
		api := fake.NewClientset()
		api.PrependReactor("patch", "daemonsets", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.(clienttesting.PatchAction).GetName() == "agent2" {
				return true, nil, errors.New("its rollout cannot be read")
			}
			return true, &appsv1.DaemonSet{}, nil
		})
		g := newGuest(t, api)
		g.looked = make(chan struct{})
		close(g.looked)
		for _, of := range sets {
			pod := versioned("p"+string(of), "7")
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent" + string(of),
				UID: of, Controller: ptr.To(true)}}
			err := api.Tracker().Add(pod)
			if err != nil {
				t.Fatal(err)
			}
			err = g.DeletePod(t.Context(), api, &onePod{is: pod, sets: sets},
				types.NamespacedName{Namespace: "default", Name: pod.Name}, pod.UID)
			if (err == nil) != (of == "1") {
				t.Errorf("with DaemonSets %v, deleting a pod of %s tells %v", sets, of, err)
			}
			if err != nil { // the next one has the same name
				err = api.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{})
				if err != nil {
					t.Errorf("the pod of %s is gone: %v", of, err)
				}
			}
		}
		g.trials.forget([]appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{UID: "2"}}})
		if len(g.trials.last) != 1 || g.trials.last["2"].err == nil {
			t.Errorf("of DaemonSets that are gone something is remembered: %v", g.trials.last)
		}
	}
}

// TestNothingIsDeletedBeforeTheCacheHasCaughtUp: what was seen of everything before that does not count as a look.
func TestNothingIsDeletedBeforeTheCacheHasCaughtUp(t *testing.T) {
	g, caughtUp := newGuest(t, fake.NewClientset()), make(chan struct{})
	g.cfg.CaughtUp, g.looked, g.wake = caughtUp, make(chan struct{}), make(chan struct{}, 1)
	for _, is := range []bool{false, true} {
		if is {
			close(caughtUp)
		}
		if err := g.look(t.Context(), empty{}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-g.looked:
			if !is {
				t.Error("it has looked, though its cache may be behind")
			}
		default:
			if is || len(g.wake) == 0 {
				t.Errorf("it has not looked; with a cache that has caught up: %v; it looks again: %d", is, len(g.wake))
			}
		}
	}
}

// empty is a cache with nothing in it.
type empty struct{ client.Reader }

// List implements client.Reader.
func (empty) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
