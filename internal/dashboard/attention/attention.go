// Package attention finds what needs somebody: rollouts that failed, stopped or wait for a
// person, and nodes out of order or that stay closed. It is pure.
package attention

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/loop/deadline"
	"github.com/everynode/everynode/internal/node"
)

// Item is one thing that needs somebody.
type Item struct {
	// Tone is "bad" for what has failed, and "warn" for what waits.
	Tone  string `json:"tone"`
	Title string `json:"title"`
	Text  string `json:"text"`
	// DaemonSet is namespace/name, empty for what concerns nodes.
	DaemonSet string `json:"daemonSet,omitempty"`
	// Since is when it began, in RFC 3339, empty if that is not known.
	Since string `json:"since,omitempty"`
}

const (
	bad  = "bad"
	warn = "warn"
	// mostItems is how many rollouts are listed, and mostNodes how many nodes are named.
	mostItems = 20
	mostNodes = 3
)

// phases are those of a rollout that does not go on without a person.
var phases = map[v1alpha1.Phase]Item{
	v1alpha1.PhaseRolledBack:         {Tone: bad, Title: "rolled back"},
	v1alpha1.PhaseHalted:             {Tone: bad, Title: "halted"},
	v1alpha1.PhaseWaitingForApproval: {Tone: warn, Title: "waits for approval"},
	v1alpha1.PhasePaused:             {Tone: warn, Title: "paused"},
}

// Of lists what needs somebody: what has failed first, then nodes, then what waits.
func Of(s *survey.Survey) []Item {
	items := stopped(s)
	if out, is := nodes(s); is {
		items = append(items, out)
	}
	if closed, is := stuck(s); is {
		items = append(items, closed)
	}
	rank := func(i Item) int {
		switch {
		case i.Tone == warn:
			return 2
		case i.DaemonSet == "":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(items, func(a, b Item) int { return cmp.Compare(rank(a), rank(b)) })
	if more := len(items) - mostItems; more > 0 {
		items = append(items[:mostItems:mostItems], Item{Tone: warn, Title: fmt.Sprintf("and %d more", more)})
	}
	return items
}

func stopped(s *survey.Survey) []Item {
	items := []Item{}
	for _, ds := range s.DaemonSets {
		r := s.Rollout(ds)
		if r == nil || r.Labels[rollouts.OwnerLabel] != string(ds.UID) ||
			meta.IsStatusConditionTrue(r.Status.Conditions, rollouts.PolicyGone) {
			continue // it is left over, and nothing follows it
		}
		item, is := phases[r.Status.Phase]
		if !is {
			continue
		}
		item.DaemonSet = ds.Namespace + "/" + ds.Name
		item.Text = r.Status.Message
		items = append(items, item)
	}
	return items
}

// stuck says how many nodes that start wait for longer than they may, or for what does not exist. Others open soon.
func stuck(s *survey.Survey) (Item, bool) {
	return about(s.Nodes, "stays closed", "stay closed", func(n *corev1.Node) (why string, since time.Time) {
		start := s.Start(n.Name)
		if start.Stuck {
			return start.Text, start.Since
		}
		return "", since
	})
}

// nodes says how many nodes are out of order. A cordoned node is as somebody wanted it.
func nodes(s *survey.Survey) (Item, bool) {
	return about(s.Nodes, "is out of order", "are out of order", func(n *corev1.Node) (why string, since time.Time) {
		why, _, since = node.Fault(n)
		if why == node.Cordoned {
			return "", since
		}
		return why, since
	})
}

// about says how many nodes there is something to say of, names some of them, and since when the first is so.
func about(all []*corev1.Node, does, do string, of func(*corev1.Node) (why string, since time.Time)) (Item, bool) {
	var named []string
	var first time.Time
	count := 0
	for _, n := range all {
		why, since := of(n)
		if why == "" {
			continue
		}
		count++
		if len(named) < mostNodes {
			named = append(named, n.Name+": "+why)
		}
		first = deadline.Sooner(first, since)
	}
	if count == 0 {
		return Item{}, false
	}
	item := Item{Tone: bad, Title: "1 node " + does, Text: strings.Join(named, "; ")}
	if count > 1 {
		item.Title = fmt.Sprintf("%d nodes %s", count, do)
	}
	if more := count - len(named); more > 0 {
		item.Text += fmt.Sprintf("; and %d more", more)
	}
	if !first.IsZero() {
		item.Since = first.UTC().Format(time.RFC3339)
	}
	return item, true
}
