// Package fleet arranges the nodes of a cluster as a map: one cell for each node, grouped
// by a label, with the node's state. It is pure.
package fleet

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/why"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// The states of nodes when no DaemonSet is looked at.
const (
	NotReady      = "NotReady"
	InMaintenance = "InMaintenance" // by its conditions, whether it is ready or not
	Cordoned      = "Cordoned"
	Starting      = "Starting" // a NodeStartup keeps ordinary pods off
	Ready         = "Ready"
)

// None is the name of the group of nodes that do not have the label.
const None = "(none)"

// Map is the fleet. A cell's number is its place in Nodes.
type Map struct {
	// Nodes are the names, ordered by group.
	Nodes []string `json:"nodes"`
	// Groups follow each other, and cover all nodes.
	Groups []Group `json:"groups"`
	// States are the names of all states that there are, what is wrong first.
	States []string `json:"states"`
	// Cells holds for each node the place of its state in States.
	Cells []byte `json:"cells"`
	// Versions says for each node which version it has: of the agent, or of the DaemonSet's pod. It is there for
	// small fleets only, whose cells have room for words.
	Versions []string `json:"versions,omitempty"`
}

// mostVersions is how many nodes a fleet may have whose versions are told.
const mostVersions = 60

// Group is nodes with one value of the label.
type Group struct {
	Name  string `json:"name"`
	First int    `json:"first"`
	Count int    `json:"count"`
}

// Change is a cell's new state.
type Change struct {
	Cell  int
	State byte
}

// Of makes the map of all nodes, by their readiness, or by the verdicts of a DaemonSet
// unless v is nil; grouped by a label's values, or not at all if label is empty.
func Of(s *survey.Survey, v *survey.View, label string) *Map {
	m := &Map{States: []string{NotReady, InMaintenance, Cordoned, Starting, Ready}, Nodes: make([]string, 0, len(s.Nodes)),
		Groups: []Group{}, Cells: make([]byte, 0, len(s.Nodes))}
	stateOf, versionOf := readiness, agentVersion
	if v != nil {
		m.States = nil
		for _, verdict := range why.Verdicts {
			m.States = append(m.States, string(verdict))
		}
		stateOf = func(n *corev1.Node) string { return string(v.Verdict(n.Name)) }
		versionOf = func(n *corev1.Node) string { return podVersion(v, n.Name) }
	}
	ordered := slices.Clone(s.Nodes)
	slices.SortStableFunc(ordered, func(a, b *corev1.Node) int {
		return cmp.Or(compareGroups(group(a, label), group(b, label)), compareNatural(a.Name, b.Name))
	})
	for i, n := range ordered {
		name := group(n, label)
		if last := len(m.Groups) - 1; last < 0 || m.Groups[last].Name != name {
			m.Groups = append(m.Groups, Group{Name: name, First: i})
		}
		m.Groups[len(m.Groups)-1].Count++
		m.Nodes = append(m.Nodes, n.Name)
		m.Cells = append(m.Cells, byte(max(slices.Index(m.States, stateOf(n)), 0)))
		if len(s.Nodes) <= mostVersions {
			m.Versions = append(m.Versions, versionOf(n))
		}
	}
	return m
}

func agentVersion(n *corev1.Node) string { return n.Status.NodeInfo.KubeletVersion }

// podVersion is the revision of the DaemonSet's newest pod on a node.
func podVersion(v *survey.View, node string) string {
	pods := v.Pods(node)
	if len(pods) == 0 {
		return "no pod"
	}
	hash := pods[len(pods)-1].Labels[appsv1.ControllerRevisionHashLabelKey]
	if number := v.Numbers[hash]; number > 0 {
		return fmt.Sprintf("revision %d", number)
	}
	return "revision " + hash
}

func readiness(n *corev1.Node) string {
	if node.Maintenance(n) != "" {
		return InMaintenance
	}
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		switch {
		case c.Status != corev1.ConditionTrue:
			return NotReady
		case n.Spec.Unschedulable:
			return Cordoned
		}
		if gate := nodestartup.TaintOf(n.Spec.Taints); gate != nil && gate.Effect == corev1.TaintEffectNoSchedule {
			return Starting
		}
		return Ready
	}
	return NotReady
}

func group(n *corev1.Node, label string) string {
	if label == "" {
		return ""
	}
	if value, ok := n.Labels[label]; ok && value != "" {
		return value
	}
	return None
}

// compareGroups puts the nodes without the label last.
func compareGroups(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == None:
		return 1
	case b == None:
		return -1
	}
	return compareNatural(a, b)
}

// compareNatural orders names so that node-2 comes before node-10.
func compareNatural(a, b string) int {
	for x, y := a, b; x != "" && y != ""; {
		i, j := digits(x), digits(y)
		if i == 0 || j == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		left, right := trimZeros(x[:i]), trimZeros(y[:j])
		if order := cmp.Or(cmp.Compare(len(left), len(right)), cmp.Compare(left, right)); order != 0 {
			return order
		}
		x, y = x[i:], y[j:]
	}
	return cmp.Compare(a, b)
}

func digits(s string) (n int) {
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

func trimZeros(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}

// Since returns what changed from one map to the next; false if they are not of the same
// nodes in the same places, and the next must be drawn again.
func (m *Map) Since(before *Map) ([]Change, bool) {
	if before == nil || !slices.Equal(m.Nodes, before.Nodes) || !slices.Equal(m.Groups, before.Groups) ||
		!slices.Equal(m.States, before.States) || !slices.Equal(m.Versions, before.Versions) {
		return nil, false
	}
	var changes []Change
	for i, state := range m.Cells {
		if before.Cells[i] != state {
			changes = append(changes, Change{Cell: i, State: state})
		}
	}
	return changes, true
}

// Labels are keys by which the nodes can be grouped, at most so many: those with two to
// a hundred values, and the well-known ones first.
func Labels(nodes []*corev1.Node, most int) []string {
	values := map[string]map[string]struct{}{}
	for _, n := range nodes {
		for key, value := range n.Labels {
			if values[key] == nil {
				values[key] = map[string]struct{}{}
			}
			if len(values[key]) <= maxGroups {
				values[key][value] = struct{}{}
			}
		}
	}
	out := []string{}
	for key, found := range values {
		if len(found) > 1 && len(found) <= maxGroups {
			out = append(out, key)
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	return out[:min(len(out), most)]
}

// maxGroups is how many groups a map has room for.
const maxGroups = 100

func rank(label string) int {
	known := []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable,
		corev1.LabelArchStable}
	if i := slices.Index(known, label); i >= 0 {
		return i
	}
	return len(known)
}
