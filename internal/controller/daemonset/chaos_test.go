package daemonset

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestChaos lets nodes come and go, templates change, pods fail and vanish and
// the API refuse and forget, with a new controller now and then. There is never
// a second pod on a node, and in the end everything is as it should be.
func TestChaos(t *testing.T) {
	for seed := range int64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { chaos(t, rand.New(rand.NewSource(seed))) })
	}
}

func chaos(t *testing.T, r *rand.Rand) {
	a := newFakeAPI(t)
	a.lag.Store(int64(15 * time.Millisecond)) // longer than the first retries
	trouble := true
	unlucky := func() bool { return trouble && r.Intn(5) == 0 } // called with the API's lock held
	a.refuseCreate = func(p *corev1.Pod) error {
		if unlucky() {
			return apierrors.NewForbidden(resource[kindPod], p.Name, fmt.Errorf("bad luck"))
		}
		return nil
	}
	a.refuseDelete = func() error {
		if unlucky() {
			return apierrors.NewTooManyRequestsError("bad luck")
		}
		return nil
	}
	a.loseAnswer = unlucky
	nodes := map[string]bool{}
	for i := range 10 {
		nodes[fmt.Sprint("n", i)] = true
		a.add(testNode(fmt.Sprint("n", i)))
	}
	a.add(testDaemonSet("logs"))
	stop := startController(t, a)
	settled(t, a, "logs", 10)
	for step := range 300 {
		a.mu.Lock()
		n := fmt.Sprint("n", r.Intn(12))
		choice, pick := r.Intn(40), r.Intn(1<<20)
		a.mu.Unlock()
		switch {
		case choice < 5 && !nodes[n]:
			nodes[n] = true
			a.add(testNode(n))
		case choice < 5:
			delete(nodes, n)
			a.loseNode(n)
		case choice < 8:
			setImage(t, a, "logs", fmt.Sprint("demo:v", step))
		case choice < 20:
			a.harm(pick, choice < 14)
		case choice == 20:
			stop()
			stop = startController(t, a)
		}
		time.Sleep(2 * time.Millisecond)
	}
	a.mu.Lock()
	trouble = false
	a.mu.Unlock()
	// The status alone may be the one from before the last harm, of which the controller is told late.
	eventually(t, func() string {
		for i := range 12 {
			if n := fmt.Sprint("n", i); !nodes[n] {
				a.collect(n)
			}
		}
		image := list[*appsv1.DaemonSet](a, kindDaemonSet)[0].Spec.Template.Spec.Containers[0].Image
		if got := images(a); len(got) != 1 || got[image] != len(nodes) {
			return fmt.Sprintf("images are %v, want %s on %d nodes", got, image, len(nodes))
		}
		return ""
	})
	settled(t, a, "logs", int32(len(nodes)))
	stop()
	if len(a.twins) > 0 {
		t.Errorf("pods met on a node: %q", a.twins)
	}
}

// loseNode removes a node and, as the pod garbage collector, its pods.
func (a *fakeAPI) loseNode(name string) {
	a.mu.Lock()
	a.drop(kindNode, keyOf("", name))
	a.mu.Unlock()
	a.collect(name)
}

// collect removes the pods of a node.
func (a *fakeAPI) collect(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, obj := range a.objects[kindPod] {
		if obj.(*corev1.Pod).Spec.NodeName == name {
			a.drop(kindPod, key)
		}
	}
}

// harm makes some pod fail or vanish.
func (a *fakeAPI) harm(pick int, vanish bool) {
	pods := list[*corev1.Pod](a, kindPod)
	if len(pods) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p, err := get[*corev1.Pod](a, kindPod, "default", pods[pick%len(pods)].Name)
	switch {
	case err != nil:
	case vanish:
		a.drop(kindPod, keyOf(p.Namespace, p.Name))
	default:
		p.Status.Phase, p.Status.Conditions = corev1.PodFailed, nil
		a.put(p)
	}
}
