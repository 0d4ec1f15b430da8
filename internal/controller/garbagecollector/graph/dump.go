package graph

import (
	"fmt"
	"slices"
	"strings"
)

// Dump describes every node, one line each, sorted: for tests and debugging.
func (g *Graph) Dump() string {
	lines := make([]string, 0, len(g.nodes))
	for uid, n := range g.nodes {
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s/%s %s", uid, n.id.Kind, n.id.Name, [...]string{"virtual", "observed", "gone"}[n.presence])
		if n.deleting {
			b.WriteString(" deleting")
		}
		if n.orphan {
			b.WriteString(" orphan")
		}
		if n.foreground {
			b.WriteString(" foreground")
		}
		for i := range n.owners {
			state, _ := g.state(n.id, &n.owners[i])
			fmt.Fprintf(
				&b, " owner=%s(%s)", n.owners[i].UID,
				[...]string{"solid", "waiting", "absent", "unverified", "unresolvable"}[state],
			)
		}
		for _, d := range sorted(n.dependents) {
			fmt.Fprintf(&b, " dependent=%s", d.id.UID)
		}
		lines = append(lines, b.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
