package survey

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// Start is how far a node is that starts.
type Start struct {
	// Text says which group it starts, and for which daemons it waits; "" for a node that does not start.
	Text string
	// Stuck tells that somebody should look: it waits for longer than a timeout, or for a DaemonSet that does not exist.
	Stuck bool
	// Since is when the group began, zero if that is not known.
	Since time.Time
}

// Starting says which group a node starts, and for which daemons it waits; "" for a node that does not start.
func (s *Survey) Starting(name string) string { return s.Start(name).Text }

// Start says how far a node is.
func (s *Survey) Start(name string) (out Start) {
	n := s.nodes[name]
	if n == nil {
		return out
	}
	gate := nodestartup.TaintOf(n.Spec.Taints)
	if gate == nil {
		return out
	}
	if gate.TimeAdded != nil {
		out.Since = gate.TimeAdded.Time
	}
	place, known := nodestartup.PlaceOf(gate.Value)
	if !known {
		out.Text = "its taint " + gate.ToString() + " names no NodeStartup"
		return out
	}
	startup := s.startup(place.Startup)
	if startup == nil {
		out.Text = fmt.Sprintf("group %d of NodeStartup %s, which is gone or cannot be read here", place.Group, place.Startup)
		return out
	}
	d := plan.Decide(startup, gate, func(of types.NamespacedName) plan.Daemon { return s.daemonOn(name, of) }, s.Now)
	at := fmt.Sprintf("group %d of %d of NodeStartup %s", place.Group, len(startup.Spec.Groups), place.Startup)
	out.Stuck = d.Late || slices.ContainsFunc(d.Waits, func(w plan.Wait) bool { return w.Missing })
	switch {
	case len(d.Waits) == 0:
		out.Text = at + "; it waits for nothing, and goes on as soon as the controller sees that"
	case d.Late:
		out.Text = at + "; it waits for longer than the timeout for " + plan.Names(d.Waits)
	default:
		out.Text = at + "; it waits for " + plan.Names(d.Waits)
	}
	return out
}

// Held are pods that do not start yet: the machine of their node has started again.
type Held struct {
	// Why says for which daemons of which group they wait, and until when at most.
	Why string `json:"why"`
	// Pods are their names, as NAMESPACE/NAME.
	Pods []string `json:"pods"`
}

// Held are the pods on a node that its agent does not start yet, by what they wait for.
func (s *Survey) Held(node string) (all []Held) {
	by := map[string][]string{}
	for _, p := range s.onNode[node] {
		if why := nodestartup.WaitsFor(p); why != "" {
			by[why] = append(by[why], p.Namespace+"/"+p.Name)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[why])
		all = append(all, Held{Why: why, Pods: by[why]})
	}
	return all
}

// startup returns the NodeStartup of that name, nil if there is none.
func (s *Survey) startup(name string) *v1alpha1.NodeStartup {
	for _, one := range s.Startups {
		if one.Name == name && one.DeletionTimestamp == nil {
			return one
		}
	}
	return nil
}

// daemonOn is how a listed DaemonSet is on a node.
func (s *Survey) daemonOn(node string, of types.NamespacedName) plan.Daemon {
	ds := s.DaemonSet(of.Namespace, of.Name)
	if ds == nil {
		return plan.Daemon{Missing: true}
	}
	return plan.DaemonOf(s.nodes[node], ds, s.RulesOn(node, ds), s.onNode[node], s.Now)
}

// RulesOn are the rules by which a node gets a daemon, or gets none: where a policy is followed, those of the revision
// that it is to have, but beside another controller, which goes by the present template.
func (s *Survey) RulesOn(node string, ds *appsv1.DaemonSet) *placement.Rules {
	newest := placement.Compile(&ds.Spec.Template.Spec)
	if s.beside || s.Policy(ds) == nil || s.Rollout(ds) == nil {
		return newest
	}
	v := s.listed[ds.UID]
	if v == nil {
		var err error
		v, err = s.View(ds)
		if err != nil {
			return newest // who looks at that DaemonSet is told why
		}
		if s.listed == nil {
			s.listed = map[types.UID]*View{}
		}
		s.listed[ds.UID] = v
	}
	return cmp.Or(v.core.RulesOn(ds.UID, node), newest)
}

// starts are the groups that list a DaemonSet, none where another controller makes the pods: that knows no groups.
func (s *Survey) starts(namespace, name string) []nodestartup.Place {
	if s.beside {
		return nil
	}
	return nodestartup.Listed(s.Startups)[types.NamespacedName{Namespace: namespace, Name: name}]
}

// addStart says of a listed DaemonSet that its group has its turn still to come on the node, instead of the taint.
func (v *View) addStart(st *Standing, name string) {
	ds, n := v.DaemonSet, v.survey.nodes[name]
	gate := nodestartup.TaintOf(n.Spec.Taints)
	if gate == nil || !v.survey.lists(ds.Namespace, ds.Name) {
		return
	}
	st.Reasons = slices.DeleteFunc(st.Reasons, func(reason string) bool {
		return strings.HasPrefix(reason, "taint "+nodestartup.TaintKey) || reason == byTheRules
	})
	if len(st.Reasons) == 0 {
		st.Reasons = []string{"waits for its turn: the node starts " + v.survey.Starting(name)}
	}
}

// lists reports whether a NodeStartup lists a DaemonSet.
func (s *Survey) lists(namespace, name string) bool { return len(s.starts(namespace, name)) > 0 }
