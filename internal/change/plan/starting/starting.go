// Package starting foretells what applying a NodeStartup would do: which nodes would follow it and how many pods that
// concerns, what becomes of the nodes that start just now, and what nodes would wait for in vain. It is pure.
//
// It judges by the same code as the controller: who follows whom, where a DaemonSet is to run, and whether its daemon
// is available.
package starting

import (
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/fit/toleration"
	"github.com/everynode/everynode/internal/objects/nodestartup"
	"github.com/everynode/everynode/internal/objects/pod"
)

// Forecast is what applying a NodeStartup would do. It is written as JSON, too: fields may be added, those that are
// here stay.
type Forecast struct {
	NodeStartup string `json:"nodeStartup"`
	// New tells that there is none of the name, Changed that its spec becomes another one.
	New     bool  `json:"new,omitempty"`
	Changed bool  `json:"changed,omitempty"`
	Nodes   Nodes `json:"nodes"`
	Pods    Pods  `json:"pods"`
	// Groups are in their order.
	Groups []Group `json:"groups"`
	// Starting are the nodes that start under it now.
	Starting []Start `json:"starting,omitempty"`
	// Never says what nodes would wait for in vain, as far as that shows.
	Never    []string `json:"never,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Nodes counts nodes by their labels of now.
type Nodes struct {
	Total int `json:"total"`
	// Chosen are those of its selector, Follow those of them that no NodeStartup takes whose name sorts before.
	Chosen int `json:"chosen"`
	Follow int `json:"follow"`
}

// Pods counts those on the nodes that would follow it.
type Pods struct {
	// Ordinary would wait after a start of their machine, Tolerant are those of them that the taint keeps off no node.
	Ordinary int `json:"ordinary"`
	Tolerant int `json:"tolerant,omitempty"`
	// Unmarked are daemons of listed DaemonSets that were made before, and carry no group or another one.
	Unmarked int `json:"unmarked,omitempty"`
}

// Group are daemons that start together.
type Group struct {
	DaemonSets []DaemonSet `json:"daemonSets"`
	Timeout    string      `json:"timeout,omitempty"`
	Then       string      `json:"then"`
}

// DaemonSet is a listed one.
type DaemonSet struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Missing tells that there is none, also in the file.
	Missing bool `json:"missing,omitempty"`
	// Nodes is on how many nodes that would follow it is to run, Available on how many of them it is available now.
	Nodes     int `json:"nodes"`
	Available int `json:"available"`
	// Lacks is the first node where it is not and something hinders it, else the first where it is not, and Why.
	Lacks string `json:"lacks,omitempty"`
	Why   string `json:"why,omitempty"`
}

// Start is a node that starts under the NodeStartup now.
type Start struct {
	Node string `json:"node"`
	// From is the group at which it is, To that at which it would be; 0 if it would open.
	From int `json:"from"`
	To   int `json:"to"`
	// Waits are the daemons that it would wait for, in words.
	Waits string `json:"waits,omitempty"`
}

// Changes reports whether anything would happen, now or when a node starts.
func (f *Forecast) Changes() bool { return f.New || f.Changed || len(f.Starting) > 0 }

// planner makes one forecast.
type planner struct {
	survey *survey.Survey
	new    *v1alpha1.NodeStartup
	sets   map[types.NamespacedName]*listed
	// follow are the nodes that would follow it, in the order of their names.
	follow []*corev1.Node
	pods   map[string][]*corev1.Pod
	out    *Forecast
}

// listed is a listed DaemonSet that there is, or will be.
type listed struct {
	*appsv1.DaemonSet
	rules *placement.Rules
	room  *survey.Room
}

// Make foretells what becomes of a survey whose NodeStartups are those of then, this one among them. Old is what is
// stored under its name, nil for none; sets are DaemonSets that come by the same file, in place of stored ones.
func Make(s *survey.Survey, old, startup *v1alpha1.NodeStartup, sets []*appsv1.DaemonSet) *Forecast {
	p := &planner{survey: s, new: startup, pods: map[string][]*corev1.Pod{},
		out: &Forecast{NodeStartup: startup.Name, New: old == nil, Groups: []Group{}}}
	p.out.Changed = old != nil && !apiequality.Semantic.DeepEqual(old.Spec, startup.Spec)
	p.find(sets)
	for _, one := range s.Pods {
		if one.Spec.NodeName != "" {
			p.pods[one.Spec.NodeName] = append(p.pods[one.Spec.NodeName], one)
		}
	}
	p.choose()
	for i := range startup.Spec.Groups {
		p.group(&startup.Spec.Groups[i])
	}
	p.countPods()
	p.starts()
	p.never()
	p.warn()
	return p.out
}

// find looks the listed DaemonSets up.
func (p *planner) find(sets []*appsv1.DaemonSet) {
	all := map[types.NamespacedName]*appsv1.DaemonSet{}
	for _, ds := range slices.Concat(p.survey.DaemonSets, sets) {
		all[types.NamespacedName{Namespace: ds.Namespace, Name: ds.Name}] = ds
	}
	p.sets = map[types.NamespacedName]*listed{}
	for i := range p.new.Spec.Groups {
		for _, d := range p.new.Spec.Groups[i].DaemonSets {
			if ds := all[nodestartup.NameOf(d)]; ds != nil && ds.DeletionTimestamp == nil {
				p.sets[nodestartup.NameOf(d)] = &listed{DaemonSet: ds, rules: placement.Compile(&ds.Spec.Template.Spec)}
			}
		}
	}
}

// choose finds the nodes that would follow it.
func (p *planner) choose() {
	set := nodestartup.NewSet(p.survey.Startups)
	for _, n := range p.survey.Nodes {
		p.out.Nodes.Total++
		for at, one := range set.Matching(n.Labels) {
			if one.Name != p.new.Name {
				continue
			}
			p.out.Nodes.Chosen++
			if at == 0 {
				p.follow = append(p.follow, n)
			}
		}
	}
	p.out.Nodes.Follow = len(p.follow)
}

// group looks at a group on the nodes that would follow.
func (p *planner) group(g *v1alpha1.StartupGroup) {
	out := Group{Timeout: string(g.Timeout), Then: string(g.Then)}
	for _, d := range g.DaemonSets {
		one, ds := DaemonSet{Namespace: d.Namespace, Name: d.Name}, p.sets[nodestartup.NameOf(d)]
		one.Missing = ds == nil
		for _, n := range p.follow {
			if ds == nil || !plan.Runs(ds.rules, n) {
				continue
			}
			one.Nodes++
			from := p.daemonOn(ds, n).From
			switch {
			case !from.IsZero() && !from.After(p.survey.Now):
				one.Available++
			case one.Lacks == "" || one.Why == noPod:
				if why := p.why(ds, n); one.Lacks == "" || why != noPod {
					one.Lacks, one.Why = n.Name, why
				}
			}
		}
		out.DaemonSets = append(out.DaemonSets, one)
	}
	p.out.Groups = append(p.out.Groups, out)
}

func (p *planner) daemonOn(ds *listed, n *corev1.Node) plan.Daemon {
	d := plan.DaemonOf(n, ds.DaemonSet, ds.rules, p.pods[n.Name], p.survey.Now)
	d.Barred = p.bars(ds)
	return d
}

// why says why a daemon is not available on a node.
func (p *planner) why(ds *listed, n *corev1.Node) string {
	for _, one := range p.pods[n.Name] {
		if ref := metav1.GetControllerOfNoCopy(one); ref == nil || ref.UID != ds.UID || pod.IsTerminal(one) {
			continue
		}
		if why, _ := pod.Trouble(one); why != "" {
			return why
		}
		return "its pod " + one.Name + " is not available"
	}
	if ds.room == nil {
		template := ds.Spec.Template.DeepCopy()
		template.Spec.Tolerations = append(template.Spec.Tolerations, nodestartup.Toleration())
		ds.room = p.survey.Room(template, ds.Namespace)
	}
	if reasons := ds.room.Reasons(n.Name, nil); len(reasons) > 0 {
		return "it has no room: " + strings.Join(reasons, "; ")
	}
	return noPod
}

// noPod is why a daemon is not available that nothing hinders.
const noPod = "it has no pod there"

// countPods counts the pods on the nodes that would follow. On an API server of others none waits after a start of its
// machine: that is its agent's doing.
func (p *planner) countPods() {
	if p.setting() != plan.Home {
		return
	}
	turns := nodestartup.Turns(p.survey.Startups...)
	maps.Copy(turns, nodestartup.Turns(p.new)) // which these nodes follow
	gate := nodestartup.Gate(nodestartup.Place{Startup: p.new.Name, Group: 1}, v1alpha1.GateJoin, p.survey.Now)
	for _, n := range p.follow {
		for _, one := range p.pods[n.Name] {
			turn := nodestartup.Turn{}
			if ref := metav1.GetControllerOfNoCopy(one); ref != nil && ref.Kind == "DaemonSet" {
				turn = turns[types.NamespacedName{Namespace: one.Namespace, Name: ref.Name}]
			}
			switch {
			case pod.IsTerminal(one), one.Annotations[corev1.MirrorPodAnnotationKey] != "":
			case turn.Group > 0 && nodestartup.GroupOf(one) != turn.Group:
				p.out.Pods.Unmarked++
			case turn.Group == 0:
				p.out.Pods.Ordinary++
				if toleration.Covered(gate, one.Spec.Tolerations) {
					p.out.Pods.Tolerant++
				}
			}
		}
	}
}

// setting is where it is, or would be, followed, as far as that shows.
func (p *planner) setting() (in plan.Setting) {
	for _, s := range p.survey.Startups {
		in = max(in, plan.SettingOf(s))
	}
	if p.survey.Beside() {
		return plan.NextTo
	}
	return in
}

// starts decides about the nodes that start under it now, as the controller will.
func (p *planner) starts() {
	for _, n := range p.survey.Nodes {
		gate := nodestartup.TaintOf(n.Spec.Taints)
		if gate == nil {
			continue
		}
		place, known := nodestartup.PlaceOf(gate.Value)
		if !known || place.Startup != p.new.Name {
			continue
		}
		d := plan.Decide(p.new, gate, func(of types.NamespacedName) plan.Daemon {
			if ds := p.sets[of]; ds != nil {
				return p.daemonOn(ds, n)
			}
			return plan.Daemon{Missing: true}
		}, p.survey.Now)
		start := Start{Node: n.Name, From: place.Group, Waits: plan.Names(d.Waits)}
		if d.Gate != nil {
			to, _ := nodestartup.PlaceOf(d.Gate.Value)
			start.To = to.Group
		}
		p.out.Starting = append(p.out.Starting, start)
	}
}

// timeoutOf is a group's timeout; 0 for none.
func (p *planner) timeoutOf(group int) time.Duration {
	return nodestartup.TimeoutOf(&p.new.Spec.Groups[group])
}
