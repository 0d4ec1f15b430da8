package spread

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/scheduler/cache"
)

func TestScorerPrefersNodesWithFewerSiblings(t *testing.T) {
	node := func(mine, others int) *cache.Node {
		return &cache.Node{Controlled: map[types.UID]int{"mine": mine, "others": others}}
	}
	nodes := []*cache.Node{node(0, 9), node(2, 0), node(1, 0)}
	if got, want := Scorer.Prepare(&cache.Pod{Controller: "mine"}, nodes, nil), []int64{100, 0, 50}; !slices.Equal(got, want) {
		t.Errorf("scores are %v, want %v", got, want)
	}
	if got := Scorer.Prepare(&cache.Pod{}, nodes, nil); got != nil {
		t.Errorf("scores of a pod without controller are %v, want none", got)
	}
}
