package nodestartup

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
)

const (
	// TaintKey is the key of the taint of nodes that start.
	TaintKey = "everynode.io/starting"
	// WithoutAnnotation names, on a Node, the daemons that a timeout went on without, separated by commas.
	WithoutAnnotation = "everynode.io/started-without"
	// ClosedAnnotation says, on a Node, when it was last closed because its machine had started again (RFC 3339). What
	// was ready before says nothing of its daemons now.
	ClosedAnnotation = "everynode.io/closed-at"
	// GroupAnnotation says, on the pods of a listed DaemonSet, in which group it starts, from 1. A machine that goes down
	// ends the last group first.
	GroupAnnotation = "everynode.io/startup-group"
	// TimeoutAnnotation says, on those pods, the timeout of a group with "then: Open": after a start of the machine its
	// group waits no longer for the pod.
	TimeoutAnnotation = "everynode.io/startup-timeout"
	// WaitsCondition is the condition of a pod that its node does not start yet: the machine has started again, and
	// daemons of earlier groups are not ready. The message says which, and until when it waits at most. Other pods have no
	// such condition.
	WaitsCondition corev1.PodConditionType = "everynode.io/WaitsForDaemons"
	// Account is the control loop that alone takes the taint away and changes it.
	Account = "node-startup-controller"
)

// HeldFor is how long pods wait at most after their machine has started again, from when its agent began to start pods:
// a daemon that never gets ready holds up no node for ever.
const HeldFor = 2 * time.Minute

// Place is how far a node is: the NodeStartup that it follows, and which of its groups starts, from 1.
type Place struct {
	Startup string
	Group   int
}

// Value is the taint's value for the place.
func (p Place) Value() string { return p.Startup + "_" + strconv.Itoa(p.Group) }

// PlaceOf reads the value of a taint; false if it is none that Value makes.
func PlaceOf(value string) (Place, bool) {
	at := strings.LastIndexByte(value, '_')
	if at < 1 {
		return Place{}, false
	}
	n, err := strconv.Atoi(value[at+1:])
	p := Place{Startup: value[:at], Group: n}
	return p, err == nil && n > 0 && p.Value() == value
}

// TaintOf returns the taint of a node that starts; nil if there is none. Nobody but the controller and admission
// writes it, and those write one.
func TaintOf(taints []corev1.Taint) *corev1.Taint {
	if at := slices.IndexFunc(taints, isGate); at >= 0 {
		return &taints[at]
	}
	return nil
}

func isGate(t corev1.Taint) bool { return t.Key == TaintKey }

// With returns the taints with this one as that of a node that starts; with nil, without any.
func With(taints []corev1.Taint, gate *corev1.Taint) []corev1.Taint {
	out := slices.DeleteFunc(slices.Clone(taints), isGate)
	if gate != nil {
		out = append(out, *gate)
	}
	return out
}

// Gate is the taint of a node at a place since some time. The API's form of a time has seconds only: it is rounded up,
// so that no timeout ends early.
func Gate(p Place, gate v1alpha1.StartupGate, at time.Time) *corev1.Taint {
	since := metav1.NewTime(at.Add(time.Second - 1).Truncate(time.Second))
	t := &corev1.Taint{Key: TaintKey, Value: p.Value(), Effect: corev1.TaintEffectNoSchedule, TimeAdded: &since}
	if gate == v1alpha1.GateNone {
		t.Effect = corev1.TaintEffectPreferNoSchedule
	}
	return t
}

// Restarted reports whether a node's machine has started again between two reports.
func Restarted(before, after *corev1.Node) bool {
	was, is := before.Status.NodeInfo.BootID, after.Status.NodeInfo.BootID
	return was != "" && is != "" && was != is
}

// Born is since when what is said of a node's pods is about the machine as it runs now: since the node was created, or
// closed again.
func Born(n *corev1.Node) time.Time {
	closed, err := time.Parse(time.RFC3339, n.Annotations[ClosedAnnotation])
	if err != nil || closed.Before(n.CreationTimestamp.Time) {
		return n.CreationTimestamp.Time
	}
	return closed
}

// Toleration is what the pods of a listed DaemonSet have for that taint.
func Toleration() corev1.Toleration {
	return corev1.Toleration{Key: TaintKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
}

// GroupOf is the group in which the pod's daemon starts, by its annotation. It is 0 for a pod that is none of a
// DaemonSet, and for one that names no group.
func GroupOf(pod *corev1.Pod) int {
	owner := metav1.GetControllerOfNoCopy(pod)
	n, err := strconv.Atoi(pod.Annotations[GroupAnnotation])
	if err != nil || n < 1 || n > MaxGroups || owner == nil || owner.Kind != "DaemonSet" {
		return 0
	}
	return n
}

// OpensAfter is how long the group of the pod's daemon waits for it on a node whose machine has started again, by the
// pod's annotation; 0 for as long as the agent waits for any, and where nothing sensible is written.
func OpensAfter(pod *corev1.Pod) time.Duration {
	length, err := time.ParseDuration(pod.Annotations[TimeoutAnnotation])
	if err != nil || length < 0 {
		return 0
	}
	return length
}

// Turn is when a listed DaemonSet starts: in a group, from 1, and how long that waits for it before it goes on, 0 for
// as long as it takes. The zero value is for a DaemonSet that is not listed.
type Turn struct {
	Group      int
	OpensAfter time.Duration
}

// Turns are those of the DaemonSets that NodeStartups list. Of one that several list, that whose name sorts first says
// it: on nodes that follow one of them, Turns of that one alone.
func Turns(all ...*v1alpha1.NodeStartup) map[types.NamespacedName]Turn {
	out := map[types.NamespacedName]Turn{}
	for _, s := range byName(all) {
		for i := range s.Spec.Groups {
			g, turn := &s.Spec.Groups[i], Turn{Group: i + 1}
			if g.Then == v1alpha1.ThenOpen {
				turn.OpensAfter = TimeoutOf(g)
			}
			for _, d := range g.DaemonSets {
				if _, earlier := out[NameOf(d)]; !earlier {
					out[NameOf(d)] = turn
				}
			}
		}
	}
	return out
}

func byName(all []*v1alpha1.NodeStartup) []*v1alpha1.NodeStartup {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b *v1alpha1.NodeStartup) int { return strings.Compare(a.Name, b.Name) })
	return sorted
}

// Annotate says on the metadata of a listed DaemonSet's pods when they start. It takes away what others wrote there in
// its place.
func (t Turn) Annotate(meta *metav1.ObjectMeta) {
	metav1.SetMetaDataAnnotation(meta, GroupAnnotation, strconv.Itoa(t.Group))
	delete(meta.Annotations, TimeoutAnnotation)
	if t.OpensAfter > 0 {
		meta.Annotations[TimeoutAnnotation] = t.OpensAfter.String()
	}
}

// WaitsFor says what the pod waits for after its machine has started again, in words for people; "" for a pod that does
// not wait.
func WaitsFor(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == WaitsCondition && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// Set are NodeStartups with their selectors read, in the order of their names.
type Set struct{ sorted []selecting }

type selecting struct {
	*v1alpha1.NodeStartup
	selector labels.Selector
}

// NewSet reads the selectors of NodeStartups. One that is being deleted, whose selector cannot be read, or in which a
// newer program wrote what this one does not know, chooses none.
func NewSet(all []*v1alpha1.NodeStartup) Set {
	var s Set
	for _, one := range all {
		selector := labels.Everything()
		if one.Spec.Nodes != nil {
			var err error
			selector, err = metav1.LabelSelectorAsSelector(one.Spec.Nodes)
			if err != nil {
				continue
			}
		}
		if one.DeletionTimestamp == nil && newer.Check(one) == nil {
			s.sorted = append(s.sorted, selecting{one, selector})
		}
	}
	slices.SortFunc(s.sorted, func(a, b selecting) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// Matching returns those that choose a node with these labels. A node that joins follows the first of them.
func (s Set) Matching(node map[string]string) (out []*v1alpha1.NodeStartup) {
	for _, one := range s.sorted {
		if one.selector.Matches(labels.Set(node)) {
			out = append(out, one.NodeStartup)
		}
	}
	return out
}

// NameOf is the name of a listed DaemonSet.
func NameOf(d v1alpha1.StartupDaemonSet) types.NamespacedName {
	return types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
}

// Listed returns in which group of which NodeStartup DaemonSets are listed, in the order of the NodeStartups' names.
func Listed(all []*v1alpha1.NodeStartup) map[types.NamespacedName][]Place {
	out := map[types.NamespacedName][]Place{}
	for _, s := range byName(all) {
		for g := range s.Spec.Groups {
			for _, d := range s.Spec.Groups[g].DaemonSets {
				out[NameOf(d)] = append(out[NameOf(d)], Place{Startup: s.Name, Group: g + 1})
			}
		}
	}
	return out
}
