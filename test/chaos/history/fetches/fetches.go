// Package fetches judges that nodes have the images of a revision before a daemon of their step is taken away, where
// their wave says fetch; pure. It knows none of the product's code: what it reads is told in docs/content.md.
//
// It lets pass what can be excused: where the policy changes in the middle less is known of when a node could be
// asked, and nodes wait only for those that had an available daemon, and were in order, since the change began.
package fetches

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/daemon"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/history/told"
	"github.com/everynode/everynode/test/chaos/history/wants"
	"github.com/everynode/everynode/test/chaos/history/waves"
)

// Place is a node, as it was, with its daemon, in the versions that the controller can have known.
type Place struct {
	Name  string
	Nodes []*corev1.Node
	Pods  []*corev1.Pod
	// Pulls are the pods that had the node pull images for its daemon's successor, as they were.
	Pulls []*corev1.Pod
}

// Take is an available daemon that was taken away for the target of a rollout.
type Take struct {
	// Place is its own, as that was known when it was decided, and Life is its node since the daemon is there.
	Place
	Life []*corev1.Node
	// Second is when, in whole seconds.
	Second time.Time
	// Policies, Sets and Rollouts are what the controller can have gone by.
	Policies []*v1alpha1.RolloutPolicy
	Sets     []*appsv1.DaemonSet
	Rollouts []*v1alpha1.DaemonSetRollout
	// Change are the versions of the rollout since its change began, Steady tells that no policy changed since.
	Change []*v1alpha1.DaemonSetRollout
	Steady bool

	wave     string
	deadline time.Duration
	targets  []string // hashes of templates
}

// Judged is what there is to say of a Take.
type Judged struct {
	// Fetched tells that its node had to have the images, and had them.
	Fetched bool
	// Why says what was not as promised; "" for nothing.
	Why string
}

// Judge judges it. The others are nodes as they were since some time before the change began.
func (t *Take) Judge(others []Place) (out Judged) {
	if !t.fetches() || !t.goes() || !t.alike() && !t.begun() || !t.ordinary(t.Nodes) {
		return out
	}
	from := t.askable()
	out.Fetched = t.says(&t.Place, has)
	never := func(p *corev1.Pod) bool { return t.answer(p) != cannot }
	switch {
	case out.Fetched:
	case len(t.Pods) > 0 && !slices.ContainsFunc(t.Pods, never):
		out.Why = fmt.Sprintf("node %s lost its daemon, and said that it cannot have the images", t.Name)
	case t.awaits(from):
		out.Why = fmt.Sprintf("node %s lost its daemon, and has not said that it has the images; it could be asked "+
			"since %s, and is waited for %s", t.Name, from.UTC().Format(time.TimeOnly), t.deadline)
	}
	if out.Why == "" && t.awaits(from) {
		out.Why = t.waits(others, from)
	}
	return out
}

// awaits reports whether a node that could be asked from a time on was surely waited for still.
func (t *Take) awaits(from time.Time) bool {
	return !from.IsZero() && t.Second.Add(time.Second).Sub(from) < t.deadline
}

// usual is for how long a node is waited for where the policy does not say.
const usual = 10 * time.Minute

// fetches reports whether the node fetches before by each policy, whichever of its waves the node is in.
func (t *Take) fetches() bool {
	t.deadline = time.Hour
	for _, p := range t.Policies {
		for _, n := range t.Nodes {
			for _, at := range waves.Of(p, n) {
				if at.Wave == len(p.Spec.Waves) || !p.Spec.Waves[at.Wave].Fetch {
					return false
				}
				w := &p.Spec.Waves[at.Wave]
				if t.wave != "" && t.wave != w.Name {
					t.Steady = false
				}
				t.wave = w.Name
				deadline, err := time.ParseDuration(string(w.FetchDeadline))
				if err != nil {
					deadline = usual
				}
				t.deadline = min(t.deadline, deadline)
			}
		}
	}
	return t.wave != ""
}

// goes reports whether the daemon was taken away for another template than its own, and the controller asks nodes.
func (t *Take) goes() bool {
	for _, r := range t.Rollouts {
		to, _ := revision.Split(r.Status.TargetRevision)
		t.targets = append(t.targets, to)
		asks := r.Status.Fetch == nil || r.Status.Fetch.Message != v1alpha1.NoFetch
		if r.Status.StableRevision == "" || !asks || len(t.Pods) == 0 || to == templateOf(t.Pods[0]) {
			return false
		}
	}
	return len(t.Rollouts) > 0
}

// alike reports whether the node had the same labels all the while: with others its daemon is another.
func (t *Take) alike() bool {
	return !slices.ContainsFunc(t.Life, func(n *corev1.Node) bool { return !maps.Equal(n.Labels, t.Life[0].Labels) })
}

// begun reports whether the node's step surely had begun: then the next daemon is the target's, whatever the node was.
func (t *Take) begun() bool {
	for _, p := range t.Policies {
		for _, n := range t.Nodes {
			at := waves.Of(p, n)
			if len(at) != 1 || slices.ContainsFunc(t.Rollouts, func(r *v1alpha1.DaemonSetRollout) bool {
				return r.Status.Step != at[0].Name(p)
			}) {
				return false
			}
		}
	}
	return true
}

// worked are the conditions of a node that somebody works on.
var worked = []corev1.NodeConditionType{
	"MaintenanceInProgress", "DrainInProgress", "Drained", "GracefulNodeShutdownInProgress",
}

// ordinary reports whether a node was in order all the while, and is to have the daemon by each template.
func (t *Take) ordinary(node []*corev1.Node) bool {
	return len(node) > 0 && !slices.ContainsFunc(node, func(n *corev1.Node) bool {
		unwanted := slices.ContainsFunc(t.Sets, func(d *appsv1.DaemonSet) bool {
			return wants.Judge(d, n) != wants.ShouldRun
		})
		return unwanted || !daemon.Well(n) || slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Status == corev1.ConditionTrue && slices.Contains(worked, c.Type)
		})
	})
}

// askable is since when the wave's nodes can have been asked, at the earliest: since the step before it began, or the
// change. Zero if that is not known.
func (t *Take) askable() (from time.Time) {
	for i, r := range t.Change {
		s := &r.Status
		at, own := -1, -1
		for k := range s.Steps {
			name, _, _ := strings.Cut(s.Steps[k].Name, "/")
			if s.Steps[k].Name == s.Step {
				at = k
			}
			if own < 0 && name == t.wave {
				own = k
			}
		}
		switch {
		case i == 0 && (at != 0 || s.StepStarted == nil):
			return time.Time{} // nobody wrote when it began
		case i == 0, t.Steady && s.StepStarted != nil && at >= 0 && at < own && s.StepStarted.After(from):
			from = s.StepStarted.Time
		}
	}
	return from
}

// waits says which node of the step was still waited for; "" if none was for sure.
func (t *Take) waits(others []Place, from time.Time) string {
	if len(t.Policies) != 1 || !t.Steady {
		return ""
	}
	p := t.Policies[0]
	step := waves.Of(p, t.Nodes[0])
	if len(step) != 1 || p.Spec.Waves[step[0].Wave].Ramp != nil {
		return ""
	}
	for _, r := range t.Rollouts {
		at := func(name string) int {
			return slices.IndexFunc(r.Status.Steps, func(s v1alpha1.StepStatus) bool { return s.Name == name })
		}
		own := at(step[0].Name(p))
		if own < 0 || at(r.Status.Step) > own {
			return "" // who comes later waits for itself alone
		}
	}
	for _, o := range others {
		in := func(n *corev1.Node) bool { return slices.Equal(waves.Of(p, n), step) }
		if o.Name == t.Name || !t.ordinary(o.Nodes) ||
			slices.ContainsFunc(o.Nodes, func(n *corev1.Node) bool { return !in(n) }) || !t.keeps(&o, from) {
			continue
		}
		if !t.says(&o, has, cannot) {
			return fmt.Sprintf("node %s lost its daemon, and node %s of the same step has not answered; it could be "+
				"asked since %s, and is waited for %s", t.Name, o.Name, from.UTC().Format(time.TimeOnly), t.deadline)
		}
	}
	return ""
}

// slack is what the times in objects, whole seconds, may be wrong by.
const slack = 3 * time.Second

// keeps reports whether a node has had one daemon all the while, which was available before the change began, and has
// the template that the one which was taken away has.
func (t *Take) keeps(o *Place, from time.Time) bool {
	for _, r := range t.Rollouts {
		if told.FailedOn(&r.Status, o.Name) {
			return false
		}
	}
	for _, p := range o.Pods {
		since, ready := daemon.ReadySince(p)
		for _, d := range t.Sets {
			since = since.Add(time.Duration(d.Spec.MinReadySeconds) * time.Second)
		}
		if !ready || p.UID != o.Pods[0].UID || p.DeletionTimestamp != nil || daemon.Ended(p) || p.Spec.NodeName == "" ||
			templateOf(p) != templateOf(t.Pods[0]) || since.Add(slack).After(from) {
			return false
		}
	}
	return len(o.Pods) > 0
}

func templateOf(p *corev1.Pod) string { return p.Labels[appsv1.ControllerRevisionHashLabelKey] }

// said is what a node says of images.
type said string

// The answers: none yet, it has them or nothing more is to be found out, it cannot have them.
const (
	none   said = ""
	has    said = "has them"
	cannot said = "cannot have them"
)

// says reports whether a node has given one of the answers: by its daemon's pod, or by one that pulled the images.
func (t *Take) says(o *Place, answers ...said) bool {
	byDaemon := func(p *corev1.Pod) bool { return slices.Contains(answers, t.answer(p)) }
	byPull := func(p *corev1.Pod) bool {
		template, _ := revision.Split(RevisionOf(p))
		return slices.Contains(t.targets, template) && slices.Contains(answers, pulled(p))
	}
	return slices.ContainsFunc(o.Pods, byDaemon) || slices.ContainsFunc(o.Pulls, byPull)
}

// answer is what a version of a pod answers to a request for images of the target.
func (t *Take) answer(p *corev1.Pod) said {
	var asked struct {
		Revision string    `json:"revision"`
		At       time.Time `json:"at"`
	}
	err := json.Unmarshal([]byte(p.Annotations["everynode.io/fetch-images"]), &asked)
	template, _ := revision.Split(asked.Revision)
	if err != nil || !slices.Contains(t.targets, template) {
		return none
	}
	key := asked.Revision + " of " + asked.At.UTC().Format(time.RFC3339Nano)
	for _, c := range p.Status.Conditions {
		if c.Type != "everynode.io/ImagesFetched" || c.Message != key && !strings.HasPrefix(c.Message, key+": ") {
			continue
		}
		if c.Status == corev1.ConditionFalse {
			return cannot
		}
		return has
	}
	return none
}
