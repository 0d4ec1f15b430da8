package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// The conditions of a NodeStartup. All are True where nothing is wrong.
const (
	// DaemonSetsFound is False while a listed DaemonSet does not exist.
	DaemonSetsFound = "DaemonSetsFound"
	// OnTime is False while a node waits for longer than a timeout.
	OnTime = "OnTime"
	// Exclusive is False while some of the chosen nodes follow another NodeStartup.
	Exclusive = "Exclusive"
)

// Node is what a status counts.
type Node struct {
	Name   string
	Labels map[string]string
	// Gate is its taint; nil if it does not start. Without tells that it went on without a daemon.
	Gate    *corev1.Taint
	Without bool
	// Waits and Late are as last decided.
	Waits []Wait
	Late  bool
	// NotClosed says why it stayed open and was to be closed; "" for others.
	NotClosed string
}

// Statuses are those of all NodeStartups, by name, in a setting. The times of conditions are left to who
// writes them.
func Statuses(all []*v1alpha1.NodeStartup, nodes []Node, in Setting,
	standing func(types.NamespacedName) Standing) map[string]*v1alpha1.NodeStartupStatus {
	counts, set := map[string]*count{}, nodestartup.NewSet(all)
	for _, s := range all {
		counts[s.Name] = &count{}
	}
	for i := range nodes {
		n := &nodes[i]
		matching := set.Matching(n.Labels)
		for at, s := range matching {
			c := counts[s.Name]
			c.status.MatchedNodes++
			if n.Gate == nil {
				c.status.OpenNodes++
			}
			if at > 0 {
				c.another.add(n.Name, matching[0].Name)
				continue
			}
			if n.Without {
				c.status.OpenedByTimeout++
			}
			if n.NotClosed != "" {
				c.open.add(n.Name, n.NotClosed)
			}
		}
		if n.Gate != nil {
			place, _ := nodestartup.PlaceOf(n.Gate.Value)
			if c := counts[place.Startup]; c != nil {
				c.starts(n)
			}
		}
	}
	out := map[string]*v1alpha1.NodeStartupStatus{}
	for _, s := range all {
		c := counts[s.Name]
		c.status.ObservedGeneration = s.Generation
		c.status.Conditions = []metav1.Condition{c.found(s, standing), c.onTime(), c.exclusive()}
		c.status.Conditions = append(c.status.Conditions, c.elsewhere(s, in, standing)...)
		for i := range c.status.Conditions {
			c.status.Conditions[i].ObservedGeneration = s.Generation
		}
		out[s.Name] = &c.status
	}
	return out
}

// count is what is known of the nodes of one NodeStartup.
type count struct {
	status              v1alpha1.NodeStartupStatus
	late, another, open some
}

// some are nodes, of which the first by name speaks for all.
type some struct {
	count        int
	first, about string
}

func (s *some) add(node, about string) {
	s.count++
	if s.first == "" || node < s.first {
		s.first, s.about = node, about
	}
}

// starts counts a node that starts.
func (c *count) starts(n *Node) {
	c.status.StartingNodes++
	if n.Late {
		c.late.add(n.Name, Names(n.Waits))
	}
}

// Names lists the first daemons that are waited for.
func Names(waits []Wait) string {
	const most = 3
	var out []string
	for i, w := range waits {
		if i == most {
			out = append(out, fmt.Sprintf("%d more", len(waits)-most))
			break
		}
		name := w.DaemonSet.String()
		switch {
		case w.Missing:
			name += ", which does not exist"
		case w.Kept != "":
			name += ", which cannot come yet: " + w.Kept
		}
		out = append(out, name)
	}
	return strings.Join(out, "; ")
}

func (c *count) found(s *v1alpha1.NodeStartup, standing func(types.NamespacedName) Standing) metav1.Condition {
	var missing []Wait
	for i := range s.Spec.Groups {
		for _, d := range s.Spec.Groups[i].DaemonSets {
			if name := nodestartup.NameOf(d); standing(name) == Missing {
				missing = append(missing, Wait{DaemonSet: name})
			}
		}
	}
	if len(missing) == 0 {
		return metav1.Condition{Type: DaemonSetsFound, Status: metav1.ConditionTrue, Reason: "Found",
			Message: "all listed DaemonSets exist"}
	}
	return metav1.Condition{Type: DaemonSetsFound, Status: metav1.ConditionFalse, Reason: "Missing",
		Message: "there is no DaemonSet " + Names(missing) + ": nodes wait for it"}
}

func (c *count) onTime() metav1.Condition {
	if c.late.count == 0 {
		return metav1.Condition{Type: OnTime, Status: metav1.ConditionTrue, Reason: "OnTime",
			Message: "no node waits for longer than a timeout"}
	}
	return metav1.Condition{Type: OnTime, Status: metav1.ConditionFalse, Reason: "Late",
		Message: fmt.Sprintf("nodes that wait for longer than a timeout: %d; %s waits for %s", c.late.count,
			c.late.first, c.late.about)}
}

func (c *count) exclusive() metav1.Condition {
	if c.another.count == 0 {
		return metav1.Condition{Type: Exclusive, Status: metav1.ConditionTrue, Reason: "Exclusive",
			Message: "no chosen node follows another NodeStartup"}
	}
	return metav1.Condition{Type: Exclusive, Status: metav1.ConditionFalse, Reason: "AnotherIsFirst",
		Message: fmt.Sprintf("chosen nodes that follow a NodeStartup whose name sorts first: %d; %s follows %s",
			c.another.count, c.another.first, c.another.about)}
}

// Same reports whether two statuses say the same, times aside.
func Same(a, b *v1alpha1.NodeStartupStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration && a.MatchedNodes == b.MatchedNodes &&
		a.StartingNodes == b.StartingNodes && a.OpenNodes == b.OpenNodes && a.OpenedByTimeout == b.OpenedByTimeout &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(c, d metav1.Condition) bool {
			return c.Type == d.Type && c.Status == d.Status && c.Reason == d.Reason && c.Message == d.Message &&
				c.ObservedGeneration == d.ObservedGeneration
		})
}
