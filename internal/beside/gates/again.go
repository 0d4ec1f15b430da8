package gates

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/objects/pod"
)

// Pods of a template are made again on a node so often in that time at most, because they wait behind the gate. Ours is
// not put there a second time without a reason, so somebody else does it then, such as another webhook.
const (
	MostAgain   = 3
	againWithin = 10 * time.Minute
)

// OfOthers is the reason of the event that tells of such pods.
const OfOthers = "GateOfOthers"

// Again remembers which pods were made again. The zero value remembers none.
type Again struct{ made map[place]*tries }

type place struct {
	set        types.UID
	node, hash string
}

// tries are the pods of a place that were made again, and when the first of them was.
type tries struct {
	since time.Time
	pods  []types.UID
}

// Bound has pods be let through in place of what would be made again for ever, and returns their nodes.
func (a *Again) Bound(now time.Time, set types.UID, due []Move) (out []Move, nodes []string) {
	for at, t := range a.made {
		if now.Sub(t.since) >= againWithin {
			delete(a.made, at)
		}
	}
	for _, m := range due {
		if m.Deed == Remake && pinning.IsGated(&m.Pod.Spec) && a.tooOften(now, set, m) {
			m = Move{m.Pod, Open, "somebody else puts pods behind the gate"}
			nodes = append(nodes, pod.TargetNode(m.Pod))
		}
		out = append(out, m)
	}
	return out, nodes
}

func (a *Again) tooOften(now time.Time, set types.UID, m Move) bool {
	at := place{set, pod.TargetNode(m.Pod), hashOf(m.Pod)}
	if a.made == nil {
		a.made = map[place]*tries{}
	}
	t := a.made[at]
	if t == nil {
		t = &tries{since: now}
		a.made[at] = t
	}
	switch {
	case slices.Contains(t.pods, m.Pod.UID): // it is still to be done
		return false
	case len(t.pods) >= MostAgain:
		return true
	}
	t.pods = append(t.pods, m.Pod.UID)
	return false
}
