package matrix

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// Snapshot is a readable copy of a matrix: what is known and what follows from
// it, without what is in flight by name or when timers fire. Two matrices that
// were told the same facts in any order give equal snapshots.
type Snapshot struct {
	Rows []RowSnapshot
	// Waiting counts the pods of DaemonSets that are not known.
	Waiting int
}

// RowSnapshot is one DaemonSet.
type RowSnapshot struct {
	Namespace, Name string
	UID             types.UID
	Revision        string
	Status          Status
	// RolloutUnavailable and RolloutSurging are the cells that count against
	// maxUnavailable and maxSurge.
	RolloutUnavailable, RolloutSurging int
	Cells                              []CellSnapshot
}

// CellSnapshot is one DaemonSet on one node.
type CellSnapshot struct {
	Node        string
	Eligibility placement.Eligibility
	// Because says why nothing is done if the cell is not as it should be.
	Because Because
	Pods    []string
}

// Dump returns a snapshot, ordered by namespace, name and node.
func (m *Matrix) Dump() Snapshot {
	var s Snapshot
	for _, r := range m.rows {
		r.now = m.now
		s.Rows = append(s.Rows, r.dump())
	}
	slices.SortFunc(s.Rows, func(a, b RowSnapshot) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+string(a.UID), b.Namespace+"/"+b.Name+"/"+string(b.UID))
	})
	for _, set := range m.waiting {
		s.Waiting += len(set)
	}
	return s
}

func (r *row) dump() RowSnapshot {
	s := RowSnapshot{
		Namespace: r.info.Namespace, Name: r.info.Name, UID: r.info.UID, Revision: r.info.Revision, Status: r.status(),
		RolloutUnavailable: int(r.totals[down]), RolloutSurging: int(r.totals[surging]),
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
func (p *trackedPod) String() string {
	words := []string{p.info.Name + "@" + p.info.Revision}
	if p.info.Phase != PodActive {
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

// String prints one line per row and per cell.
func (s Snapshot) String() string {
	var b strings.Builder
	for _, r := range s.Rows {
		fmt.Fprintf(&b, "%s/%s rev=%s %s\n", r.Namespace, r.Name, r.Revision, r.Status)
		for _, c := range r.Cells {
			fmt.Fprintf(&b, "  %s", c.Node)
			if c.Eligibility != placement.ShouldRun {
				fmt.Fprintf(&b, " (%s)", c.Eligibility)
			}
			if len(c.Pods) > 0 {
				fmt.Fprintf(&b, ": %s", strings.Join(c.Pods, "; "))
			}
			if c.Because != AsWanted {
				fmt.Fprintf(&b, " [%s]", c.Because)
			}
			b.WriteByte('\n')
		}
	}
	if s.Waiting > 0 {
		fmt.Fprintf(&b, "%d pods wait for their DaemonSet\n", s.Waiting)
	}
	return b.String()
}

// String prints the numbers in the order of the API's status.
func (st Status) String() string {
	return fmt.Sprintf("gen=%d desired=%d current=%d ready=%d updated=%d available=%d unavailable=%d misscheduled=%d",
		st.ObservedGeneration, st.Desired, st.Current, st.Ready, st.Updated, st.Available, st.Unavailable, st.Misscheduled)
}
