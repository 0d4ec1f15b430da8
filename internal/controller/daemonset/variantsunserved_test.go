package daemonset

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// withoutVariants is an API that has no definition of DaemonSetVariant until somebody says so.
type withoutVariants struct {
	policyAPI
	defined *atomic.Bool
}

func (a withoutVariants) GetInformer(
	ctx context.Context, obj client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	if kindOf(obj) == kindVariant && !a.defined.Load() {
		kind := schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: kindVariant}
		return nil, &meta.NoKindMatchError{GroupKind: kind}
	}
	return a.policyAPI.GetInformer(ctx, obj, opts...)
}

// TestVariantsThatAreDefinedLater has a controller work where nobody defined variants, take one in as soon as somebody
// has, and keep the pods by it when it starts while they are not served.
func TestVariantsThatAreDefinedLater(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	for _, name := range []string{"n1", "n2", "n3"} {
		a.add(sizedNode(name, "xl", 4))
	}
	a.add(testDaemonSet("logs"))
	start := func(from Informers) func() {
		c, err := New(Config{
			Informers: from, Writer: a, Recorder: record.NewFakeRecorder(100000), Rollouts: a, Variants: a,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	}
	api := withoutVariants{a, &atomic.Bool{}}
	stop := start(api)
	settled(t, a.fakeAPI, "logs", 3)
	a.shows(t, "map[demo:v1:3]")

	api.defined.Store(true)
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "large", Generation: 1}}
	container := list[*corev1.Pod](a.fakeAPI, kindPod)[0].Spec.Containers[0].Name
	v.Spec.Patch = &runtime.RawExtension{
		Raw: []byte(`{"spec":{"containers":[{"name":"` + container + `","image":"demo:large"}]}}`),
	}
	a.add(v)
	a.shows(t, "map[demo:large:3]")
	stop()

	api.defined.Store(false)
	stop = start(api)
	defer func() { stop() }()
	// A node that joins gets what the others have: the controller works.
	a.add(sizedNode("n4", "xl", 4))
	a.shows(t, "map[demo:large:4]")
}

// TestAPodThatDriftedIsNoRevision has a controller start while nobody can read policies and rollouts, and one node is
// another now than its pod says: what that pod is called is no revision, and a node that joins gets what the others
// have.
func TestAPodThatDriftedIsNoRevision(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	want := map[string]string{}
	for i := range 4 {
		name := fmt.Sprint("n", i)
		a.add(sizedNode(name, "xl", 4))
		want[name] = "threads 8"
	}
	a.add(testVariant("large", "xl", threads(8), ""))
	a.add(smallCanary(v1alpha1.ApprovalManual))
	a.add(testDaemonSet("logs"))
	stop := startWithVariants(t, a)
	defer func() { stop() }()
	settled(t, a.fakeAPI, "logs", 4)
	wantDaemons(t, a.fakeAPI, want)
	wantPhase(t, a, v1alpha1.PhaseComplete, "")
	a.says(t, fact.FollowsPolicy+string(v1alpha1.PhaseComplete))
	stop()

	a.add(sizedNode("n3", "s", 4))
	a.erase(kindRollout, "default", "logs")
	blind := undefined(a)
	c, err := New(Config{
		Informers: blind, Writer: a, Recorder: record.NewFakeRecorder(100000), Rollouts: a, Variants: a,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = func() { cancel(); <-done }
	a.says(t, fact.FollowsPolicy+string(v1alpha1.PhasePaused))
	a.add(sizedNode("n4", "xl", 4))
	want["n4"] = "threads 8"
	wantDaemons(t, a.fakeAPI, want)
}
