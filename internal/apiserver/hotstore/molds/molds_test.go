package molds

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"
)

// TestSharingChangesNothing: whatever two objects have in common, after they share it they
// are what they were.
func TestSharingChangesNothing(t *testing.T) {
	fill := randfill.NewWithSeed(3).NilChance(.3).NumElements(1, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(5), resource.DecimalSI)
		},
		func(s *string, c randfill.Continue) { *s = []string{"", "a", "b", "c"}[c.Intn(4)] },
	)
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		old, fresh := &corev1.Pod{}, &corev1.Pod{}
		fill.Fill(old)
		if random.IntN(2) == 0 {
			fill.Fill(fresh)
		} else {
			fresh = old.DeepCopy()
			fill.Fill(&fresh.Status)
		}
		wantOld, wantFresh := old.DeepCopy(), fresh.DeepCopy()
		share(reflect.ValueOf(fresh).Elem(), reflect.ValueOf(old).Elem())
		if !reflect.DeepEqual(old, wantOld) || !reflect.DeepEqual(fresh, wantFresh) {
			t.Fatal("sharing changed an object")
		}
	}
}

func daemonPod(name string) *corev1.Pod {
	controller := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", Labels: map[string]string{"controller-revision-hash": "h"},
			OwnerReferences: []metav1.OwnerReference{{UID: "u", Name: "d", Controller: &controller}},
		},
		Spec: corev1.PodSpec{
			NodeName: name, Containers: []corev1.Container{{Name: "c", Image: string([]byte("everynode.io/demo:v1")), Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}},
			Tolerations: []corev1.Toleration{{Key: "k"}},
		},
	}
}

// TestPodsOfOneTemplateShare their specs' parts, and a pod shares with its version before.
func TestPodsOfOneTemplateShare(t *testing.T) {
	var m Molds
	first, second := daemonPod("a"), daemonPod("b")
	m.Fit(first, nil)
	m.Fit(second, nil)
	if &first.Spec.Containers[0] != &second.Spec.Containers[0] || &first.Spec.Tolerations[0] != &second.Spec.Tolerations[0] {
		t.Error("two pods of one template have containers and tolerations of their own")
	}
	if cap(second.Spec.Containers) != 1 {
		t.Error("who appends to shared containers writes into others' memory")
	}
	third := daemonPod("c")
	third.Spec.Containers[0].Env[0].Value = "own"
	m.Fit(third, nil)
	if third.Spec.Containers[0].Env[0].Value != "own" || first.Spec.Containers[0].Env[0].Value != "b" {
		t.Error("sharing changed a pod")
	}
	if unsafe.StringData(third.Spec.Containers[0].Image) != unsafe.StringData(first.Spec.Containers[0].Image) {
		t.Error("equal strings in different containers are kept twice")
	}
	next := third.DeepCopy()
	next.Status.Phase = corev1.PodRunning
	m.Fit(next, third)
	if &next.Spec.Containers[0] != &third.Spec.Containers[0] {
		t.Error("a pod with a new status has a spec of its own")
	}
	for i := range 3 * moldsKept {
		other := daemonPod("d")
		other.Labels["controller-revision-hash"] = string(rune('a' + i))
		m.Fit(other, nil)
	}
	if len(m.kept) > moldsKept {
		t.Errorf("%d molds are kept", len(m.kept))
	}
}

// TestNodesShare what they have alike, and keep what is their own.
func TestNodesShare(t *testing.T) {
	made := func(name string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{
				Capacity:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourcePods: resource.MustParse("110")},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: string([]byte("kubelet is posting ready status")), LastHeartbeatTime: metav1.Unix(int64(len(name)), 0)}},
			},
		}
	}
	var m Molds
	first, second := made("a"), made("bb")
	want := second.DeepCopy()
	m.Fit(first, nil)
	m.Fit(second, nil)
	if reflect.ValueOf(first.Status.Capacity).Pointer() != reflect.ValueOf(second.Status.Capacity).Pointer() {
		t.Error("two nodes of one size have capacities of their own")
	}
	if unsafe.StringData(first.Status.Conditions[0].Message) != unsafe.StringData(second.Status.Conditions[0].Message) {
		t.Error("what all nodes say is kept for each of them")
	}
	if !reflect.DeepEqual(second, want) {
		t.Error("sharing changed a node")
	}
}

// BenchmarkFit has a pod of a template share with the first one, and with itself before its status was written.
func BenchmarkFit(b *testing.B) {
	first, second := daemonPod("a"), daemonPod("b")
	second.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
		Conditions:        []corev1.PodCondition{{Type: "Ready"}, {Type: "Initialized"}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "c"}}}
	for _, with := range []*corev1.Pod{first, second} {
		b.Run(with.Name, func(b *testing.B) {
			fresh := make([]*corev1.Pod, b.N)
			for i := range fresh {
				fresh[i] = second.DeepCopy()
				fresh[i].Status.Message = "new"
			}
			b.ReportAllocs()
			b.ResetTimer()
			for _, p := range fresh {
				share(reflect.ValueOf(p).Elem(), reflect.ValueOf(with).Elem())
			}
		})
	}
}
