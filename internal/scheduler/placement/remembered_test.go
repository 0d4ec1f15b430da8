package placement

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/fit"
)

// Of the sorts of pods that wait, those that were asked about last are remembered, each once.
func TestLatestSortsAreRemembered(t *testing.T) {
	p := New(1)
	sort := func(priority int) *fit.Pod {
		return fit.NewPod(&corev1.Pod{Spec: corev1.PodSpec{Priority: new(int32(priority))}})
	}
	known := map[int]*answers{}
	for i := range mostRemembered {
		p.remember(sort(i))
		known[i] = p.known(sort(i))
	}
	p.remember(sort(0))
	if p.known(sort(0)) != known[0] || p.known(sort(7)) != known[7] {
		t.Error("what was asked about before is not remembered")
	}
	p.remember(sort(mostRemembered)) // 1 was asked about the longest ago
	for i := range mostRemembered {
		kept := false
		for _, a := range p.remembered {
			kept = kept || a == known[i]
		}
		if want := i != 1; kept != want {
			t.Errorf("%d is remembered: %v", i, kept)
		}
	}
	if len(p.remembered) != mostRemembered {
		t.Errorf("%d are remembered, and at most %d are to be", len(p.remembered), mostRemembered)
	}
}

// A sort of pods whose search finds enough nodes is not worth asking all, and pushes out none of those that wait.
func TestWhoFindsEnoughIsNotRemembered(t *testing.T) {
	p, c := New(1), fit.NewCluster()
	for i := range 1000 {
		c.SetNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)},
			Status: corev1.NodeStatus{
				Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9")},
			},
		})
	}
	place := func(priority int32, selector map[string]string) (node string, remembered int) {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Priority: &priority, NodeSelector: selector}}
		node = p.Place(fit.NewPod(pod), View{Cluster: c}).Node
		return node, len(p.remembered)
	}
	if node, remembered := place(0, map[string]string{"no": "such"}); node != "" || remembered != 1 {
		t.Errorf("a pod that fits nowhere goes to %q, and %d sorts are remembered, want 1", node, remembered)
	}
	for i := range int32(2 * mostRemembered) {
		if node, remembered := place(i, nil); node == "" || remembered != 1 {
			t.Fatalf("pod %d that fits everywhere goes to %q, and %d sorts are remembered, want 1", i, node, remembered)
		}
	}
}
