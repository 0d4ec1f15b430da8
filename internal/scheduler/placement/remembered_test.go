package placement

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

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
		known[i] = p.known(sort(i))
	}
	if p.known(sort(0)) != known[0] || p.known(sort(7)) != known[7] {
		t.Error("what was asked about before is not remembered")
	}
	p.known(sort(mostRemembered)) // 1 was asked about the longest ago
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
