package daemonset

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// forbidden is a fakeAPI that lets nobody list Everynode's own kinds until it is told.
type forbidden struct {
	policyAPI
	answers
	watches *Watches
	clock   *clocktesting.FakeClock
	seen    []toolscache.ListerWatcherWithContext
	allowed chan struct{}
}

func (f *forbidden) GetInformer(ctx context.Context, obj client.Object, o ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := f.policyAPI.GetInformer(ctx, obj, o...)
	if kind := kindOf(obj); kind == kindPolicy || kind == kindRollout {
		seen := toolscache.ToListerWatcherWithContext(f.watches.Of(f.listWatch(), obj))
		if _, err := seen.ListWithContext(ctx, metav1.ListOptions{}); err == nil {
			return nil, errors.New("nobody refuses the list")
		}
		f.seen = append(f.seen, seen)
		return forbiddenInformer{informer, f}, err
	}
	return informer, err
}

// allow has the kinds be listed and watched from now on.
func (f *forbidden) allow(t *testing.T) {
	f.err = nil
	for _, seen := range f.seen {
		if _, err := seen.WatchWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	close(f.allowed)
	f.clock.Step(settling)
}

type forbiddenInformer struct {
	cache.Informer
	api *forbidden
}

// AddEventHandler registers when it is allowed.
func (i forbiddenInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	r := &fakeRegistration{synced: make(chan struct{})}
	go func() {
		<-i.api.allowed
		got, err := i.Informer.AddEventHandler(h)
		if err == nil {
			<-got.HasSyncedChecker().Done()
			close(r.synced)
		}
	}()
	return r, nil
}

// Who may not list policies and rollouts still gives every node a daemon, and changes
// what no policy ever matched. What follows one stands still, with its stable revision
// for nodes that have no pod, until both can be read.
func TestKindsThatMayNotBeListed(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	for i := range 6 {
		a.add(policyNode(i))
	}
	careful, free := testDaemonSet("careful"), testDaemonSet("free")
	careful.Labels = map[string]string{"tier": "careful"}
	for _, ds := range []client.Object{careful, free} {
		a.add(ds)
	}
	most := intstr.FromString("100%")
	a.add(&v1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Generation: 1},
		Spec: v1alpha1.RolloutPolicySpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "careful"}},
			Waves:    []v1alpha1.Wave{{Name: "canary", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "canary"}}, MaxUnavailable: &most, Approval: v1alpha1.ApprovalManual}},
		},
	})
	on := func(name string) map[string]int {
		out := map[string]int{}
		for _, p := range list[*corev1.Pod](a.fakeAPI, kindPod) {
			if p.Labels["app"] == name {
				out[p.Spec.Containers[0].Image]++
			}
		}
		return out
	}
	runs := func(name, image string, n int) {
		t.Helper()
		eventually(t, func() string {
			if got := on(name); got[image] != n {
				return fmt.Sprintf("%s runs %v, want %s on %d nodes", name, got, image, n)
			}
			return ""
		})
	}
	phase := func(want v1alpha1.Phase) {
		t.Helper()
		eventually(t, func() string {
			r, err := a.GetRollout(t.Context(), "default", "careful")
			if err != nil {
				return err.Error()
			}
			if r.Status.Phase != want {
				return fmt.Sprintf("%s: %s", r.Status.Phase, r.Status.Message)
			}
			return ""
		})
	}
	stop := startWithPolicies(t, a)
	runs("careful", "demo:v1", 6)
	phase(v1alpha1.PhaseComplete)
	setImage(t, a.fakeAPI, "careful", "demo:v2")
	phase(v1alpha1.PhaseWaitingForApproval)
	runs("careful", "demo:v2", 2)
	settled(t, a.fakeAPI, "free", 6)
	stop()

	clock := clocktesting.NewFakeClock(time.Now())
	f := &forbidden{policyAPI: a, watches: NewWatches(clock), clock: clock, allowed: make(chan struct{})}
	f.err = apierrors.NewForbidden(resource[kindPolicy], "", errors.New("no right to list"))
	before, err := a.GetRollout(t.Context(), "default", "careful")
	if err != nil {
		t.Fatal(err)
	}
	stop = startWatched(t, a, f, f.watches)
	defer func() { stop() }()
	a.add(policyNode(7))
	setImage(t, a.fakeAPI, "free", "demo:v2")
	runs("free", "demo:v2", 7)
	runs("careful", "demo:v1", 5)
	if got := on("careful"); got["demo:v2"] != 2 {
		t.Errorf("it runs %v", got)
	}
	if after, err := a.GetRollout(t.Context(), "default", "careful"); err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the rollout that nobody can read was written: %v, %v", after.Status, err)
	}

	f.allow(t)
	eventually(t, func() string {
		r, err := a.GetRollout(t.Context(), "default", "careful")
		if err != nil || r.ResourceVersion == before.ResourceVersion {
			return fmt.Sprint("nobody goes on with the rollout: ", err)
		}
		return ""
	})
	phase(v1alpha1.PhaseWaitingForApproval)
	edit(t, a.fakeAPI, "default", "careful", func(r *v1alpha1.DaemonSetRollout) {
		r.Generation++
		r.Spec.Approved = &v1alpha1.StepApproval{Revision: r.Status.TargetRevision, Digest: r.Status.TargetDigest, Step: v1alpha1.AllSteps}
	})
	runs("careful", "demo:v2", 7)
	phase(v1alpha1.PhaseComplete)
}
