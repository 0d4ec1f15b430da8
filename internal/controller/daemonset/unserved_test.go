package daemonset

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// withoutDefinitions is an API whose own kinds are defined only when somebody says so: both together, or one of them
// later.
type withoutDefinitions struct {
	policyAPI
	defined, rolloutsLater, policiesLater *atomic.Bool
}

func undefined(a policyAPI) withoutDefinitions {
	return withoutDefinitions{a, &atomic.Bool{}, &atomic.Bool{}, &atomic.Bool{}}
}

func (a withoutDefinitions) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	kind := kindOf(obj)
	missing := !a.defined.Load() || kind == kindRollout && a.rolloutsLater.Load() ||
		kind == kindPolicy && a.policiesLater.Load()
	if (kind == kindPolicy || kind == kindRollout) && missing {
		return nil, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: kind}}
	}
	informer, err := a.policyAPI.GetInformer(ctx, obj, opts...)
	if kind == kindPolicy || kind == kindRollout {
		return slowInformer{informer}, err
	}
	return informer, err
}

// slowInformer is one of which it is known a while later that it has been read, when nothing else happens any more.
type slowInformer struct{ cache.Informer }

type slowRegistration struct {
	toolscache.ResourceEventHandlerRegistration
	toolscache.DoneChecker
	done chan struct{}
}

func (i slowInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	r, err := i.Informer.AddEventHandler(h)
	if err != nil {
		return nil, err
	}
	slow := slowRegistration{r, r.HasSyncedChecker(), make(chan struct{})}
	go func() {
		<-slow.DoneChecker.Done()
		time.Sleep(300 * time.Millisecond)
		close(slow.done)
	}()
	return slow, nil
}

func (i slowInformer) RemoveEventHandler(r toolscache.ResourceEventHandlerRegistration) error {
	return i.Informer.RemoveEventHandler(r.(slowRegistration).ResourceEventHandlerRegistration)
}

func (r slowRegistration) HasSyncedChecker() toolscache.DoneChecker { return r }
func (r slowRegistration) Done() <-chan struct{}                    { return r.done }

// images counts the pods of each image.
func (a policyAPI) images() string {
	out := map[string]int{}
	for _, p := range list[*corev1.Pod](a.fakeAPI, kindPod) {
		out[p.Spec.Containers[0].Image]++
	}
	return fmt.Sprint(out)
}

func (a policyAPI) shows(t *testing.T, want string) {
	t.Helper()
	eventually(t, func() string {
		if got := a.images(); got != want {
			return "the images are " + got + ", want " + want
		}
		return ""
	})
}

func (a policyAPI) says(t *testing.T, reason string) {
	t.Helper()
	eventually(t, func() string {
		ds, err := a.GetDaemonSet(t.Context(), "default", "logs")
		if err != nil {
			return err.Error()
		}
		is := func(c appsv1.DaemonSetCondition) bool { return c.Reason == reason }
		if !slices.ContainsFunc(ds.Status.Conditions, is) {
			return fmt.Sprintf("the conditions are %v", ds.Status.Conditions)
		}
		return ""
	})
}

func waitsForApproval(name string) *v1alpha1.RolloutPolicy {
	canary := &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "canary"}}
	return &v1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1},
		Spec: v1alpha1.RolloutPolicySpec{
			Waves: []v1alpha1.Wave{{Name: "canary", Nodes: canary, Approval: v1alpha1.ApprovalManual}},
		},
	}
}

// TestAStartWithoutDefinitions has a controller start while the definitions are missing and a change waits for
// approval: the change stands still, daemons come back as they were, and it goes on when the definitions are back.
func TestAStartWithoutDefinitions(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	for i := range 6 {
		a.add(policyNode(i))
	}
	a.add(waitsForApproval("careful"))
	a.add(testDaemonSet("logs"))
	stop := startWithPolicies(t, a)
	settled(t, a.fakeAPI, "logs", 6)
	a.says(t, fact.FollowsPolicy+string(v1alpha1.PhaseComplete))
	setImage(t, a.fakeAPI, "logs", "demo:v2")
	a.says(t, fact.FollowsPolicy+string(v1alpha1.PhaseWaitingForApproval))
	stop()
	a.shows(t, "map[demo:v1:4 demo:v2:2]")

	gone := undefined(a)
	stop = startWatched(t, a, gone, nil)
	defer func() { stop() }()
	// A node that joins gets the stable revision: the controller works, and the change stands.
	a.add(policyNode(6))
	a.shows(t, "map[demo:v1:5 demo:v2:2]")
	a.says(t, fact.FollowsPolicy+string(v1alpha1.PhasePaused))
	// An edit is no way around it.
	setImage(t, a.fakeAPI, "logs", "demo:v3")
	a.add(policyNode(7))
	a.shows(t, "map[demo:v1:6 demo:v2:2]")

	gone.defined.Store(true)
	a.says(t, fact.FollowsPolicy+string(v1alpha1.PhaseWaitingForApproval))
	a.shows(t, "map[demo:v1:6 demo:v3:2]")
	edit(t, a.fakeAPI, "default", "logs", func(r *v1alpha1.DaemonSetRollout) {
		r.Generation = 2
		r.Spec.Approved = &v1alpha1.StepApproval{
			Revision: r.Status.TargetRevision, Digest: r.Status.TargetDigest, Step: v1alpha1.AllSteps,
		}
	})
	a.shows(t, "map[demo:v3:8]")
}

// TestWithoutDefinitionsAsInKubernetes proves that a cluster that never had the definitions needs none, and that
// those applied later are noticed, also one by one: a rollout that there never was is not taken for one that was
// deleted.
func TestWithoutDefinitionsAsInKubernetes(t *testing.T) {
	for _, oneByOne := range []bool{false, true} {
		t.Run(fmt.Sprint("one by one ", oneByOne), func(t *testing.T) { definitionsComeLate(t, oneByOne) })
	}
}

func definitionsComeLate(t *testing.T, oneByOne bool) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	for i := range 4 {
		a.add(policyNode(i))
	}
	a.add(testDaemonSet("logs"))
	plain := undefined(a)
	stop := startWatched(t, a, plain, nil)
	defer func() { stop() }()
	settled(t, a.fakeAPI, "logs", 4)
	setImage(t, a.fakeAPI, "logs", "demo:v2")
	a.shows(t, "map[demo:v2:4]")

	a.add(waitsForApproval("careful"))
	plain.rolloutsLater.Store(oneByOne)
	plain.defined.Store(true)
	if oneByOne {
		a.says(t, fact.NotStored)
		setImage(t, a.fakeAPI, "logs", "demo:v3") // waits, and begins with the rollout
		a.says(t, fact.NotStored)
		plain.rolloutsLater.Store(false)
	} else {
		a.says(t, fact.FollowsPolicy+string(v1alpha1.PhaseComplete))
		setImage(t, a.fakeAPI, "logs", "demo:v3")
	}
	a.says(t, fact.FollowsPolicy+string(v1alpha1.PhaseWaitingForApproval))
	a.shows(t, "map[demo:v2:2 demo:v3:2]")
}

// TestARolloutThatIsGoneWhenDefinitionsComeBack has definitions and all their objects be deleted after a revision has
// failed, while no controller runs. They come back together or one by one, and the policy in the middle or last: the
// change waits for somebody's word.
func TestARolloutThatIsGoneWhenDefinitionsComeBack(t *testing.T) {
	for _, later := range []string{"none", kindPolicy, kindRollout} {
		for _, last := range []bool{true, false} {
			if last || later != "none" {
				t.Run(fmt.Sprintf("later %s policy last %t", later, last), func(t *testing.T) {
					t.Parallel()
					definitionsComeBack(t, later, last)
				})
			}
		}
	}
}

func definitionsComeBack(t *testing.T, later string, last bool) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	for i := range 6 {
		a.add(sizedNode(fmt.Sprint("n", i), "s", 4))
	}
	a.add(smallCanary(v1alpha1.ApprovalAutomatic))
	a.add(testDaemonSet("logs"))
	stop := startWithPolicies(t, a)
	defer func() { stop() }()
	wantPhase(t, a, v1alpha1.PhaseComplete, "")
	fails(a.fakeAPI, func(c *corev1.Container) bool { return c.Image == "demo:v2" })
	setImage(t, a.fakeAPI, "logs", "demo:v2")
	wantPhase(t, a, v1alpha1.PhaseRolledBack, "")
	a.says(t, fact.FollowsPolicy+string(v1alpha1.PhaseRolledBack))
	a.shows(t, "map[demo:v1:6]")
	stop()
	a.erase(kindRollout, "default", "logs")
	a.erase(kindPolicy, "default", "careful")
	var given atomic.Int32
	a.mu.Lock()
	a.refuseCreate = func(p *corev1.Pod) error {
		if p.Spec.Containers[0].Image == "demo:v2" {
			given.Add(1)
		}
		return nil
	}
	a.mu.Unlock()

	gone := undefined(a)
	gone.policiesLater.Store(later == kindPolicy)
	gone.rolloutsLater.Store(later == kindRollout)
	stop = startWatched(t, a, gone, nil)
	a.says(t, fact.FollowsPolicy+string(v1alpha1.PhasePaused))
	if !last {
		a.add(smallCanary(v1alpha1.ApprovalAutomatic))
	}
	gone.defined.Store(true)
	if later != "none" {
		time.Sleep(awaitEvery + time.Second) // one of them is noticed
	}
	gone.policiesLater.Store(false)
	gone.rolloutsLater.Store(false)
	if last {
		wantPhase(t, a, v1alpha1.PhasePaused, "its policy was deleted")
		a.add(smallCanary(v1alpha1.ApprovalAutomatic))
	}
	r := wantPhase(t, a, v1alpha1.PhasePaused, "its DaemonSetRollout was deleted while it was")
	if !r.Spec.Paused || given.Load() > 0 {
		t.Errorf("the revision that failed was given to %d nodes, and the rollout is to be %+v", given.Load(), r.Spec)
	}
}
