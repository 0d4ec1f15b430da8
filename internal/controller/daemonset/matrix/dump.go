package matrix

import (
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// Snapshot is a readable copy of a matrix: what is known and what follows from
// it, without what is in flight by name or when timers fire. Two matrices that
// were told the same facts in any order give equal snapshots.
type Snapshot struct {
	Rows []row.Snapshot
	// Waiting counts the pods of DaemonSets that are not known.
	Waiting int
}

// Dump returns a snapshot, ordered by namespace, name and node.
func (m *Matrix) Dump() Snapshot {
	var s Snapshot
	for _, r := range m.rows {
		s.Rows = append(s.Rows, r.Dump(m.now))
	}
	slices.SortFunc(s.Rows, func(a, b row.Snapshot) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+string(a.UID), b.Namespace+"/"+b.Name+"/"+string(b.UID))
	})
	for _, set := range m.waiting {
		s.Waiting += len(set)
	}
	return s
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
			if c.Because != row.AsWanted {
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
