// Package placement says which nodes a DaemonSet's revisions want their daemon on.
//
// Rules are the compiled placement rules of one pod template, a Set those of all known
// revisions of a DaemonSet. Both are values that never change: who has to decide about a node
// gets them as it gets other facts.
package placement

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// Eligibility says what a DaemonSet's placement rules say about one node.
type Eligibility uint8

// The three cases. ShouldContinueRunning means that a pod already there stays
// but none is started.
const (
	ShouldNotRun Eligibility = iota
	ShouldContinueRunning
	ShouldRun
)

func (e Eligibility) String() string {
	return [...]string{"should not run", "should continue running", "should run"}[e]
}

// Rules are the compiled placement rules of a pod template.
type Rules struct {
	nodeName    string
	required    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
	// starts are the NodeStartups that list the DaemonSet, and in which group of each.
	starts []nodestartup.Place
	// key stands for the inputs: equal keys, equal rules.
	key string
}

// Same reports whether both say the same of every node.
func (p *Rules) Same(o *Rules) bool { return p == o || p != nil && o != nil && p.key == o.key }

// Compile reads the placement rules of a pod template once, so that
// judging a node parses nothing.
func Compile(spec *corev1.PodSpec) *Rules {
	p := &Rules{
		nodeName:    spec.NodeName,
		required:    nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity),
		tolerations: Tolerations(spec),
	}
	var affinity *corev1.NodeSelector
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		affinity = spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	key, err := json.Marshal([]any{spec.NodeName, spec.NodeSelector, affinity, p.tolerations})
	if err != nil {
		panic("placement: plain API types do not marshal: " + err.Error())
	}
	p.key = string(key)
	return p
}

// Starting returns the rules of a DaemonSet that is listed there: on a node that starts it waits for its group, and
// then the taint of such nodes is tolerated.
func (p *Rules) Starting(starts []nodestartup.Place) *Rules {
	if p == nil || len(starts) == 0 {
		return p
	}
	out := *p
	out.starts = starts
	key, err := json.Marshal(starts)
	if err != nil {
		panic("placement: names and numbers do not marshal: " + err.Error())
	}
	out.key = strings.TrimSuffix(p.key, "]") + "," + string(key) + "]"
	return &out
}

// MarshalJSON implements json.Marshaler.
func (p *Rules) MarshalJSON() ([]byte, error) { return []byte(p.key), nil }

// UnmarshalJSON implements json.Unmarshaler. Tolerations that every daemon gets
// are in the JSON already; adding them again changes nothing.
func (p *Rules) UnmarshalJSON(raw []byte) error {
	var spec corev1.PodSpec
	var affinity *corev1.NodeSelector
	var starts []nodestartup.Place
	err := json.Unmarshal(raw, &[]any{&spec.NodeName, &spec.NodeSelector, &affinity, &spec.Tolerations, &starts})
	if err != nil {
		return fmt.Errorf("read placement rules: %w", err)
	}
	if affinity != nil {
		required := corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: affinity}
		spec.Affinity = &corev1.Affinity{NodeAffinity: &required}
	}
	*p = *Compile(&spec).Starting(starts)
	return nil
}

// Judge reports whether the node fits. The reason is empty when it does.
func (p *Rules) Judge(n *corev1.Node) (Eligibility, string) {
	if p.nodeName != "" && p.nodeName != n.Name {
		return ShouldNotRun, "the template names another node"
	}
	if ok, err := p.required.Match(n); err != nil || !ok {
		return ShouldNotRun, "node selector or affinity does not match"
	}
	verdict, why := ShouldRun, ""
	for i := range n.Spec.Taints {
		taint := &n.Spec.Taints[i]
		if first := p.waitsFor(taint); first != "" {
			verdict, why = ShouldContinueRunning, first
			continue
		}
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || p.tolerates(taint) {
			continue
		}
		if taint.Effect == corev1.TaintEffectNoExecute {
			return ShouldNotRun, "taint " + taint.ToString() + " is not tolerated"
		}
		if verdict == ShouldRun {
			verdict, why = ShouldContinueRunning, "taint "+taint.ToString()+" is not tolerated"
		}
	}
	return verdict, why
}

// Listed reports whether a NodeStartup lists the DaemonSet.
func (p *Rules) Listed() bool { return len(p.starts) > 0 }

// Waits says why nothing starts on a node that is one of the fleet all the same: it starts, and others come first, or
// it is marked as out of order; "" if nothing keeps the daemon away.
func (p *Rules) Waits(n *corev1.Node) string {
	if e, why := p.Judge(n); e == ShouldContinueRunning && p.waitFor(n) {
		return why
	}
	return ""
}

// waitsFor says which group starts first, if a taint says that the node starts daemons that come before this one, and
// how far it is; "" if it does not. It counts whatever the template tolerates.
func (p *Rules) waitsFor(taint *corev1.Taint) string {
	if taint.Key != nodestartup.TaintKey || len(p.starts) == 0 {
		return ""
	}
	at, _ := nodestartup.PlaceOf(taint.Value)
	later := func(s nodestartup.Place) bool { return s.Startup == at.Startup && s.Group > at.Group }
	if !slices.ContainsFunc(p.starts, later) {
		return ""
	}
	return fmt.Sprintf("group %d of NodeStartup %s starts there first", at.Group, at.Startup)
}

func (p *Rules) tolerates(taint *corev1.Taint) bool {
	if taint.Key == nodestartup.TaintKey && len(p.starts) > 0 && taint.Effect == corev1.TaintEffectNoSchedule {
		return true // as do the pods
	}
	return slices.ContainsFunc(p.tolerations, func(t corev1.Toleration) bool {
		switch {
		case t.Effect != "" && t.Effect != taint.Effect, t.Key != "" && t.Key != taint.Key:
			return false
		case t.Operator == corev1.TolerationOpExists:
			return true
		}
		return (t.Operator == "" || t.Operator == corev1.TolerationOpEqual) && t.Value == taint.Value
	})
}

// Tolerations returns the tolerations of a daemon pod: the template's, then those
// every daemon pod has. One of the template's that has the same key, effect,
// operator and value gives way, and with it its tolerationSeconds.
func Tolerations(spec *corev1.PodSpec) []corev1.Toleration {
	out := slices.Clone(spec.Tolerations)
	add := func(key string, effect corev1.TaintEffect) {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		if i := slices.IndexFunc(out, func(o corev1.Toleration) bool { return o.MatchToleration(&t) }); i >= 0 {
			out[i] = t
			return
		}
		out = append(out, t)
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if spec.HostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
	return out
}

// PinToNode returns the affinity with its required node terms replaced by one
// that allows the named node only. The argument is not changed.
func PinToNode(a *corev1.Affinity, node string) *corev1.Affinity {
	out := a.DeepCopy()
	if out == nil {
		out = &corev1.Affinity{}
	}
	if out.NodeAffinity == nil {
		out.NodeAffinity = &corev1.NodeAffinity{}
	}
	out.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}},
		}},
	}
	return out
}
