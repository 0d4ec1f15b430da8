package staticpods_test

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/sources"
	"github.com/everynode/everynode/internal/agent/staticpods"
	"github.com/everynode/everynode/internal/agent/status"
)

// startMirrors runs the pods and mirrors of a node whose API is a fake.
func startMirrors(t *testing.T, client *fake.Clientset) (*pods.Manager, *podstest.Runtime) {
	t.Helper()
	r, s := podstest.NewRuntime(), sources.New(client, "n1")
	statuses := status.New(status.APIWriter{Client: client})
	mirrors := staticpods.NewMirrorKeeper(staticpods.MirrorsConfig{
		Statuses: statuses, Seen: s, Writer: staticpods.APIMirrors{Client: client}, Clock: clock.RealClock{},
	})
	p := podstest.Start(t, r, podstest.NewAPI(), podstest.WithStaticPods, func(cfg *pods.Config) {
		cfg.Statuses, cfg.StaticsChanged, cfg.MirrorSeen = mirrors, mirrors.Poke, mirrors.MirrorSeen
	})
	mirrors.Running = p
	handled, err := s.Feed(p)
	podstest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		s.Run(ctx, handled, func() {
			p.APIListed()
			mirrors.Poke()
		})
	})
	wg.Go(func() { statuses.Run(ctx) })
	wg.Go(func() { mirrors.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return p, r
}

func TestMirrorFollowsTheStaticPod(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}})
	p, r := startMirrors(t, client)
	mirror := func() *corev1.Pod {
		pod, err := client.CoreV1().Pods("default").Get(t.Context(), "s", metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return pod
	}
	first := podstest.StaticPod("s", "1")
	p.SetStatics([]*corev1.Pod{first})
	p.RuntimeListed(nil)
	r.Await(t, "sandbox s", "start s/main")
	shown := func(static *corev1.Pod) func() bool {
		return func() bool {
			pod := mirror()
			return pod != nil && staticpods.Mirrors(pod, static) && pod.Status.Phase == corev1.PodRunning
		}
	}
	podstest.Eventually(t, "the mirror shows that the pod runs", shown(first))
	if owner := mirror().OwnerReferences; len(owner) != 1 || owner[0].UID != "node-uid" {
		t.Errorf("the mirror's owners are %v, want the node", owner)
	}
	// Whoever deletes the mirror stops nothing, and it comes back with its status.
	podstest.Must(t, client.CoreV1().Pods("default").Delete(t.Context(), "s", metav1.DeleteOptions{}))
	podstest.Eventually(t, "the mirror is back", shown(first))
	if len(r.Done) > 0 {
		t.Errorf("the runtime was asked to %s", <-r.Done)
	}
	second := podstest.StaticPod("s", "2")
	p.SetStatics([]*corev1.Pod{second})
	podstest.Eventually(t, "the mirror shows the new pod", shown(second))
	p.SetStatics(nil)
	podstest.Eventually(t, "the mirror is gone", func() bool { return mirror() == nil })
}

func TestOrphanedMirrorIsRemoved(t *testing.T) {
	forged := podstest.Pod("forged")
	forged.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}, forged)
	p, _ := startMirrors(t, client)
	p.SetStatics(nil)
	p.RuntimeListed(nil)
	podstest.Eventually(t, "the mirror of nothing is gone", func() bool {
		_, err := client.CoreV1().Pods("default").Get(t.Context(), "forged", metav1.GetOptions{})
		return err != nil
	})
}
