package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/objects/nodestartup"
	"github.com/everynode/everynode/internal/objects/pod"
)

// Standing is where one DaemonSet stands on one node.
type Standing struct {
	Verdict standing.Verdict
	Since   time.Time
	// Reasons are all that is known, the one that decided first.
	Reasons []string
	// Has is the revision of the node's newest pod, Wants that which it is to have; "" for none.
	Has, Wants string
	Step       string
	// Pod is the newest one, nil if there is none.
	Pod *corev1.Pod
	// Container is one of it that has failed, "" if none has; Restarted: it ran before.
	Container string
	Restarted bool
}

// Standing tells where the DaemonSet stands on a node that exists.
func (v *View) Standing(name string) Standing {
	verdict, why, _ := v.core.Verdict(v.DaemonSet.UID, name)
	st := Standing{Verdict: verdict, Step: v.Step(name)}
	if pods := v.Pods(name); len(pods) > 0 {
		st.Pod = pods[len(pods)-1]
		st.Has = v.Project(st.Pod).Revision
	}
	st.Since = v.since(name, verdict, st.Pod)
	order, _ := v.core.Order(v.DaemonSet.UID, name)
	if verdict == standing.NotSelected {
		rules := v.Template(order.Target)
		if v.Rules == nil { // without a policy the present template decides for all nodes
			rules = &v.DaemonSet.Spec.Template
		}
		st.Reasons = unselected(&rules.Spec, v.survey.nodes[name])
		v.addStart(&st, name)
		if strings.Contains(strings.Join(st.Reasons, " "), "taint node.kubernetes.io/") {
			v.addFaults(&st, name) // the taint comes from one
		}
		return st
	}
	if v.core.Selects(v.DaemonSet.UID, order.Target, name) {
		st.Wants = order.Target
	}
	if then, is := strings.CutPrefix(why, "its turn"); is || why == "" && verdict == standing.Waiting {
		why = v.turn(name) + then
	}
	st.add(why)
	v.addFaults(&st, name)
	v.addPod(&st, name)
	v.addDirect(&st)
	v.addDomains(&st, name)
	return st
}

// add adds a reason that is not there yet, nor part of one that is.
func (st *Standing) add(reason string) {
	if reason == "" || slices.ContainsFunc(st.Reasons, func(r string) bool { return strings.Contains(r, reason) }) {
		return
	}
	st.Reasons = append(st.Reasons, reason)
}

// turn says what a node waits for that is next when there is room.
func (v *View) turn(name string) string {
	because := v.because(name)
	if v.Rules == nil && v.DaemonSet.Spec.UpdateStrategy.Type == "OnDelete" {
		return string(row.WaitsForUser)
	}
	if v.busy == nil {
		busy := v.survey.Busy(v.core, v.DaemonSet.UID)
		v.busy = &busy
	}
	switch {
	case *v.busy != "":
		return "its turn: " + *v.busy
	case v.Rules != nil && v.Rollout != nil: // its controller knows of nodes that use it up since before
		if _, by, is := strings.Cut(v.Rollout.Status.Message, words.UsedUp); is {
			return "its turn: " + words.UsedUp + by
		}
	case because != row.AsWanted && v.Rules == nil:
		return "its turn: " + string(because)
	}
	return "its turn"
}

// Busy says which nodes use up what may change at a time, to one that waits for it; "" if none does.
func (s *Survey) Busy(c *Core, uid types.UID) string {
	var busy []string
	for _, n := range s.Nodes {
		verdict, _, _ := c.Verdict(uid, n.Name)
		if verdict == standing.Changing || verdict == standing.FailedRevision || c.Between(uid, n.Name) {
			busy = append(busy, n.Name)
		}
	}
	if len(busy) == 0 {
		return ""
	}
	return "the limit is used up by " + Some(busy)
}

// addFaults adds all that is wrong with the node itself.
func (v *View) addFaults(st *Standing, name string) {
	n := v.survey.nodes[name]
	st.add(node.Maintenance(n))
	why, _, _ := node.Fault(n)
	if why == "" {
		return
	}
	st.add(why)
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && c.Message != "" {
			st.add("node says: " + c.Message)
		}
		if c.Type != corev1.NodeReady && c.Status == corev1.ConditionTrue &&
			strings.HasSuffix(string(c.Type), "Pressure") {
			st.add("node has " + string(c.Type))
		}
	}
	if n.Spec.Unschedulable {
		st.add("the node is cordoned")
	}
}

// addPod adds all that is wrong with the node's pod.
func (v *View) addPod(st *Standing, name string) {
	p := st.Pod
	if p == nil {
		if order := v.because(name); order != row.AsWanted && v.Rules == nil {
			st.add(string(order))
		}
		return
	}
	if pod.IsTerminating(p) {
		st.add("pod " + p.Name + " is being deleted")
	}
	if !pod.IsBound(p) {
		for _, r := range v.survey.Reasons(p, name, nil) {
			st.add(r)
		}
		return
	}
	st.add(nodestartup.WaitsFor(p))
	if why, _ := pod.Trouble(p); why != "" {
		st.add(why)
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			st.addContainer(&list[i])
		}
	}
	if verdictIsBad(st.Verdict) && pod.IsBound(p) && !pod.IsReady(p) && st.Container == "" {
		st.add("pod " + p.Name + " is not ready")
	}
}

func verdictIsBad(v standing.Verdict) bool {
	return v == standing.FailedRevision || v == standing.Changing || v == standing.NodeFault ||
		v == standing.InMaintenance
}

func (st *Standing) addContainer(c *corev1.ContainerStatus) {
	last := c.LastTerminationState.Terminated
	if c.State.Terminated != nil {
		last = c.State.Terminated
	}
	bad := last != nil && (last.ExitCode != 0 || c.RestartCount > 0)
	if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
		bad = true
		text := "container " + c.Name + " waits: " + w.Reason
		if w.Message != "" {
			text += ": " + w.Message
		}
		st.add(text)
	}
	if !bad {
		return
	}
	if st.Container == "" {
		st.Container, st.Restarted = c.Name, c.RestartCount > 0 && c.State.Terminated == nil
	}
	if last != nil {
		text := fmt.Sprintf("container %s: %s, last ended with exit code %d (%s) at %s",
			c.Name, Count(int(c.RestartCount), "restart"), last.ExitCode, last.Reason,
			last.FinishedAt.UTC().Format("15:04:05 UTC"))
		if last.Message != "" {
			text += fmt.Sprintf(", last words %q", lastLine(last.Message))
		}
		st.add(text)
	}
}

// addDomains names the nodes that are down in a domain that is full.
func (v *View) addDomains(st *Standing, name string) {
	if v.Rules == nil || st.Verdict != standing.Waiting {
		return
	}
	own := v.survey.nodes[name].Labels
	for _, d := range v.Rules.Domains {
		value, has := own[d.Key]
		names := func(reason string) bool { return strings.Contains(reason, d.Key+"="+value) }
		if !has || !slices.ContainsFunc(st.Reasons, names) {
			continue
		}
		var down []string
		for _, n := range v.survey.Nodes {
			if n.Name == name || n.Labels[d.Key] != value {
				continue
			}
			verdict, why, _ := v.core.Verdict(v.DaemonSet.UID, n.Name)
			if verdictIsBad(verdict) || verdict == standing.NoRoom {
				down = append(down, n.Name+" ("+why+")")
			}
		}
		if len(down) > 0 {
			st.add("unavailable in " + d.Key + "=" + value + ": " + Some(down))
		}
	}
}

// Some names up to three, and says how many more there are.
func Some(names []string) string {
	text := strings.Join(names[:min(3, len(names))], ", ")
	if more := len(names) - 3; more > 0 {
		text += " and " + Number(more) + " more"
	}
	return text
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func byAge(pods []*corev1.Pod) []*corev1.Pod {
	out := slices.Clone(pods)
	slices.SortFunc(out, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// podSince is since when a pod is as it is.
func podSince(verdict standing.Verdict, p *corev1.Pod) time.Time {
	switch verdict {
	case standing.Current:
		at, _ := pod.ReadySince(p)
		return at
	case standing.Changing, standing.FailedRevision, standing.NoRoom:
		if says := fetchReport(p); says.Reason != "" && !says.Reason.Done() {
			return says.Answered
		}
		return p.CreationTimestamp.Time
	}
	return time.Time{}
}
