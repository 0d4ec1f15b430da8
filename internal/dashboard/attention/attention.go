// Package attention finds what needs somebody: rollouts that failed, stopped or wait for a
// person, variants that cannot be had or are in conflict, and nodes out of order or that stay closed. It is pure.
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
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/dashboard/varied"
	"github.com/everynode/everynode/internal/loop/deadline"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/objects/nodestartup"
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
	items := append(stopped(s), amiss(s)...)
	if out, is := nodes(s); is {
		items = append(items, out)
	}
	if closed, is := stuck(s); is {
		items = append(items, closed)
	}
	if open, is := leftOpen(s); is {
		items = append(items, open)
	}
	if long, is := maintained(s); is {
		items = append(items, long)
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

// amiss says which variants cannot be had, and which are in conflict: that once for all of them.
func amiss(s *survey.Survey) (items []Item) {
	said := map[string]bool{}
	all := slices.SortedFunc(slices.Values(s.Variants), func(a, b *v1alpha1.DaemonSetVariant) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, v := range all {
		for _, remark := range varied.Remarks(v) {
			title := "has a variant that cannot be had, " + v.Name
			if remark.Tone == warn {
				title = "has variants in conflict"
			}
			item := Item{Tone: remark.Tone, Title: title, Text: remark.Text, DaemonSet: first(s, v, remark.Text),
				Since: remark.Since.Format(time.RFC3339)}
			if item.DaemonSet == "" {
				item.Title = fmt.Sprintf("DaemonSetVariant %s/%s cannot be had", v.Namespace, v.Name)
			}
			if key := v.Namespace + item.Title + item.Text; !said[key] {
				items, said[key] = append(items, item), true
			}
		}
	}
	return items
}

// first is the first DaemonSet that a variant chooses and a text names, or that it chooses; "" for none.
func first(s *survey.Survey, v *v1alpha1.DaemonSetVariant, text string) (found string) {
	for _, ds := range s.DaemonSets {
		if !variant.Selects(v, ds) {
			continue
		}
		name := ds.Namespace + "/" + ds.Name
		if strings.HasPrefix(text, "DaemonSet "+ds.Name+" ") || strings.HasPrefix(text, "DaemonSet "+ds.Name+":") {
			return name
		}
		found = cmp.Or(found, name)
	}
	return found
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

// leftOpen says how many nodes stayed open that were to be closed, until somebody has looked at that.
func leftOpen(s *survey.Survey) (Item, bool) {
	item, is := about(s.Nodes, "stayed open", "stayed open", func(n *corev1.Node) (why string, since time.Time) {
		return n.Annotations[nodestartup.NotClosedAnnotation], since
	})
	item.Tone = warn
	return item, is
}

// maintained says how many nodes have been in maintenance for so long that somebody may have forgotten it.
func maintained(s *survey.Survey) (Item, bool) {
	const does, do = "has been in maintenance for more than a day", "have been in maintenance for more than a day"
	item, is := about(s.Nodes, does, do, func(n *corev1.Node) (why string, since time.Time) {
		if long := node.LongMaintenances(n, s.Now); len(long) > 0 {
			return node.SayMaintenance(long[0]), long[0].LastTransitionTime.Time
		}
		return "", since
	})
	item.Tone = warn
	return item, is
}

// nodes says how many nodes are out of order. One that is cordoned or in maintenance is as somebody wanted it.
func nodes(s *survey.Survey) (Item, bool) {
	return about(s.Nodes, "is out of order", "are out of order", func(n *corev1.Node) (why string, since time.Time) {
		why, _, since = node.Fault(n)
		if why == node.Cordoned || node.Maintenance(n) != "" {
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
