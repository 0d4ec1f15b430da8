package agent

import (
	"context"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/staticpods"
	"github.com/everynode/everynode/internal/agent/status"
)

// staticPod is a static pod of that name; its UID is made of digit.
func staticPod(name, digit string) *corev1.Pod {
	pod := boxPod(name)
	pod.UID = types.UID(strings.Repeat(digit, 32))
	pod.Annotations = map[string]string{"kubernetes.io/config.hash": string(pod.UID)}
	return pod
}

func startStaticPods(t *testing.T, r *memoryRuntime, a *api) *pods {
	t.Helper()
	p := startPods(t, r, a)
	p.mu.Lock()
	p.statics.awaited = true
	p.mu.Unlock()
	return p
}

func TestStaticPodsNeedNoAPI(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	p := startStaticPods(t, r, a)
	p.RuntimeListed(nil)
	p.staticPods([]*corev1.Pod{staticPod("s", "1")})
	r.await(t, "sandbox s", "start s/main")
	p.staticPods(nil)
	r.await(t, "kill "+strings.Repeat("1", 32)+"-main-0", "stop "+strings.Repeat("1", 32)+"-0",
		"remove "+strings.Repeat("1", 32)+"-main-0", "remove "+strings.Repeat("1", 32)+"-0", "clean "+strings.Repeat("1", 32))
}

func TestEditedStaticPodWaitsForTheOldOne(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	p := startStaticPods(t, r, a)
	p.staticPods([]*corev1.Pod{staticPod("s", "1")})
	p.RuntimeListed(nil)
	r.await(t, "sandbox s", "start s/main")
	p.staticPods([]*corev1.Pod{staticPod("s", "2")})
	old := strings.Repeat("1", 32)
	for _, step := range []string{"kill " + old + "-main-0", "stop " + old + "-0"} {
		r.await(t, step)
	}
	r.await(t, "remove "+old+"-main-0", "remove "+old+"-0")
	r.await(t, "clean "+old)
	r.await(t, "sandbox s", "start s/main")
	// And back, while the second is on its way out: each life begins after the one before it.
	p.staticPods([]*corev1.Pod{staticPod("s", "1")})
	p.staticPods([]*corev1.Pod{staticPod("s", "2")})
	again := strings.Repeat("2", 32)
	r.await(t, "kill "+again+"-main-0")
	r.await(t, "stop "+again+"-0")
	r.await(t, "remove "+again+"-main-0", "remove "+again+"-0")
	r.await(t, "clean "+again)
	r.await(t, "sandbox s", "start s/main")
	if !p.has(types.UID(again)) || p.has(types.UID(old)) {
		t.Error("the pod that runs is not the one that is wanted")
	}
}

func TestRestartedAgentKnowsItsStaticPods(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	kept, stale := strings.Repeat("1", 32), strings.Repeat("2", 32)
	for _, uid := range []string{kept, stale} {
		r.pods[types.UID(uid)] = &podworker.Runtime{Sandboxes: []podworker.Sandbox{{ID: "s" + uid[:1], Ready: true, HostNetwork: true}},
			Containers: []podworker.Container{{ID: "c" + uid[:1], Name: "main", SandboxID: "s" + uid[:1], State: podworker.Running}}}
	}
	p := startStaticPods(t, r, a)
	p.staticPods([]*corev1.Pod{staticPod("kept", "1")})
	// A pod of the API is left alone until the API is read.
	p.RuntimeListed([]cri.PodRef{{UID: types.UID(kept), Namespace: "default", Name: "kept"}, {UID: types.UID(stale), Namespace: "default", Name: "stale"},
		{UID: "6f9c1c0e-7a53-4f0c-9a0c-1b1f7e1a2b3c", Namespace: "default", Name: "other"}})
	r.await(t, "kill c2")
	r.await(t, "stop s2")
	r.await(t, "remove c2", "remove s2")
	r.await(t, "clean "+stale)
	if !p.has(types.UID(kept)) {
		t.Error("the static pod that ran has no worker")
	}
}

// startMirrors runs the pods and mirrors of a node whose API is a fake.
func startMirrors(t *testing.T, client *fake.Clientset) (*node, *memoryRuntime) {
	t.Helper()
	r, a := newMemoryRuntime(), newAPI()
	n := &node{client: client, sources: newSources(client, "n1"), statuses: status.New(status.APIWriter{Client: client})}
	n.mirrors = newMirrors(n, clock.RealClock{})
	n.pods = startStaticPods(t, r, a)
	n.pods.statuses = n.mirrors
	n.pods.statics.changed, n.pods.statics.mirror = n.mirrors.poke, n.mirrors.seen
	handled, err := n.sources.feed(n.pods)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { n.sources.run(ctx, handled, n.listed) })
	wg.Go(func() { n.statuses.Run(ctx) })
	wg.Go(func() { n.mirrors.run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return n, r
}

func TestMirrorFollowsTheStaticPod(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}})
	n, r := startMirrors(t, client)
	mirror := func() *corev1.Pod {
		pod, err := client.CoreV1().Pods("default").Get(t.Context(), "s", metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return pod
	}
	first := staticPod("s", "1")
	n.pods.staticPods([]*corev1.Pod{first})
	n.pods.RuntimeListed(nil)
	r.await(t, "sandbox s", "start s/main")
	shown := func(static *corev1.Pod) func() bool {
		return func() bool {
			pod := mirror()
			return pod != nil && staticpods.Mirrors(pod, static) && pod.Status.Phase == corev1.PodRunning
		}
	}
	eventually(t, "the mirror shows that the pod runs", shown(first))
	if owner := mirror().OwnerReferences; len(owner) != 1 || owner[0].UID != "node-uid" {
		t.Errorf("the mirror's owners are %v, want the node", owner)
	}
	// Whoever deletes the mirror stops nothing, and it comes back with its status.
	must(t, client.CoreV1().Pods("default").Delete(t.Context(), "s", metav1.DeleteOptions{}))
	eventually(t, "the mirror is back", shown(first))
	if len(r.done) > 0 {
		t.Errorf("the runtime was asked to %s", <-r.done)
	}
	second := staticPod("s", "2")
	n.pods.staticPods([]*corev1.Pod{second})
	eventually(t, "the mirror shows the new pod", shown(second))
	n.pods.staticPods(nil)
	eventually(t, "the mirror is gone", func() bool { return mirror() == nil })
}

func TestOrphanedMirrorIsRemoved(t *testing.T) {
	forged := boxPod("forged")
	forged.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}, forged)
	n, _ := startMirrors(t, client)
	n.pods.staticPods(nil)
	n.pods.RuntimeListed(nil)
	eventually(t, "the mirror of nothing is gone", func() bool {
		_, err := client.CoreV1().Pods("default").Get(t.Context(), "forged", metav1.GetOptions{})
		return err != nil
	})
}

func TestMirrorOpensNoOtherPod(t *testing.T) {
	victim := boxPod("victim")
	forged := boxPod("forged")
	forged.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: string(victim.UID)}
	l := lookup{static: func(string, string) *corev1.Pod { return nil }}
	if got := l.uidOf(forged); got != forged.UID {
		t.Errorf("a pod with the annotation of a mirror stands for %s", got)
	}
	static := staticPod("forged", "1")
	l.static = func(string, string) *corev1.Pod { return static }
	if got := l.uidOf(forged); got != static.UID {
		t.Errorf("the mirror stands for %s, want the static pod of its name", got)
	}
}
