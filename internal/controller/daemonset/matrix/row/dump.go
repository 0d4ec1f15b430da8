package row

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// Snapshot is one DaemonSet.
type Snapshot struct {
	Namespace, Name string
	UID             types.UID
	Revision        string
	Status          fact.Status
	// RolloutUnavailable and RolloutSurging are the cells that count against
	// maxUnavailable and maxSurge, RolloutUp those on which the rollout may rely.
	RolloutUnavailable, RolloutSurging, RolloutUp int

	Cells []CellSnapshot
}

// CellSnapshot is one DaemonSet on one node.
type CellSnapshot struct {
	Node        string
	Eligibility placement.Eligibility
	// Because says why nothing is done if the cell is not as it should be.
	Because Because
	Pods    []string
}

// Dump returns a snapshot as of a moment, ordered by node.
func (r *Row) Dump(now time.Time) Snapshot {
	r.now = now
	s := Snapshot{
		Namespace: r.info.Namespace, Name: r.info.Name, UID: r.info.UID, Revision: r.info.Revision, Status: r.Status(),
		RolloutUnavailable: int(r.totals[down]), RolloutSurging: int(r.totals[surging]), RolloutUp: int(r.totals[up]),
	}
	for _, c := range r.cells {
		cs := CellSnapshot{Node: c.node, Eligibility: c.eligibility, Because: r.because(c)}
		for _, p := range c.pods {
			cs.Pods = append(cs.Pods, p.String())
		}
		s.Cells = append(s.Cells, cs)
	}
	slices.SortFunc(s.Cells, func(a, b CellSnapshot) int { return strings.Compare(a.Node, b.Node) })
	return s
}

// String shows a pod as name, revision and what is remarkable about it.
func (p *Pod) String() string {
	words := []string{p.info.Name + "@" + p.info.Revision}
	if p.info.Phase != fact.PodActive {
		words = append(words, p.info.Phase.String())
	}
	if p.info.Ready {
		words = append(words, "ready")
	}
	if !p.live() {
		words = append(words, "terminating")
	}
	if p.info.Adopting {
		words = append(words, "adopting")
	}
	if !p.info.Bound {
		words = append(words, "unbound")
	}
	return strings.Join(words, " ")
}
