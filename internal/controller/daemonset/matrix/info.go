package matrix

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/content"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/pod"
)

// Strategy is how a row replaces pods of an older revision. It is comparable.
type Strategy struct {
	// OnDelete leaves old pods alone until somebody deletes them.
	OnDelete bool
	// MaxUnavailable and MaxSurge are counts of cells or percentages of the
	// desired cells, rounded up.
	MaxUnavailable, MaxSurge intstr.IntOrString
}

// First says how many nodes may be given the newest template now.
type First uint8

// The values of First.
const (
	NoFirst       First = iota // as many as limits allow
	FirstIsWanted              // one
	FirstPulls                 // none
)

// DaemonSetInfo is all that the matrix reads of a DaemonSet.
type DaemonSetInfo struct {
	UID             types.UID
	Namespace, Name string
	// Generation is the generation of the spec that the other fields describe.
	// A new generation forgives failed pods.
	Generation int64
	// Revision is the hash of the current template; where content is a part of it, of both.
	Revision string
	// Digest is that of the current template, for the status of a rollout.
	Digest string `json:",omitempty"`
	// Content is what the status of a rollout says of the revision's content; nil where it has none.
	Content *v1alpha1.ContentStatus `json:",omitempty"`
	// Images is what it says of images; nil where they are as written.
	Images *v1alpha1.ImagesStatus `json:",omitempty"`
	// First says whether pods of the newest template wait for what the first one's node finds out.
	First     First `json:",omitempty"`
	Placement *placement.Rules
	// Earlier has the placement rules of earlier revisions. Without a policy they do not
	// matter.
	Earlier         *placement.Revisions `json:",omitempty"`
	Strategy        Strategy
	MinReadySeconds int32
	// Held stops creations and deletions, not counting: the row's next revision
	// is being worked out.
	Held bool
	// Deleting stops every action: the DaemonSet is on its way out.
	Deleting bool
	// Reported is the status as last read from the API.
	Reported Status
	// Conditions are those last read from the API. They matter when the row is
	// added: after that the matrix knows what it wrote, and does not fight
	// somebody who writes them otherwise.
	Conditions Conditions
}

// rules are the placement rules of all revisions that are known.
func (d *DaemonSetInfo) rules() placement.Set {
	return placement.Set{Newest: d.Revision, Rules: d.Placement, Earlier: d.Earlier}
}

// NodeInfo is all that the matrix reads of a Node.
type NodeInfo struct {
	Name   string
	Labels map[string]string
	Taints []corev1.Taint
}

// PodInfo is all that the matrix reads of a Pod. It is comparable.
type PodInfo struct {
	UID  types.UID
	Name string
	// Owner is the UID of the DaemonSet that controls the pod.
	Owner types.UID
	// Node is the node the pod is bound to or meant for; "" for none.
	Node     string
	Bound    bool
	Revision string
	Phase    PodPhase
	Ready    bool
	// ReadySince is when Ready became true; only set while Ready.
	ReadySince  time.Time
	Terminating bool
	// EndsBy is until when it was to be gone; only set while Terminating.
	EndsBy time.Time `json:",omitzero"`
	// WasReady tells that it was ready when its deletion was asked for; only set while
	// Terminating.
	WasReady bool `json:",omitempty"`
	// Unplaceable is why the scheduler finds no room for the pod on its node;
	// "" while it has not said so.
	Unplaceable string
	// BoundAt is when it was bound, Restarts how often a container of it restarted.
	BoundAt  time.Time `json:",omitzero"`
	Restarts int32     `json:",omitempty"`
	// Trouble is why it does not come up; Certain tells that waiting will not help.
	Trouble string `json:",omitempty"`
	Certain bool   `json:",omitempty"`
	// Cause is what it is then.
	Cause pod.Cause `json:",omitempty"`
	// Before is what the daemon was like that it replaced.
	Before course.Before `json:",omitempty"`
	// Adopting says that the pod is not ours yet but about to be: it fills its
	// cell, and nothing is done to it.
	Adopting bool
	Created  time.Time
}

// PodPhase is a pod's phase as far as it matters here.
type PodPhase uint8

// The three cases: alive (or about to be), ended badly, ended well.
const (
	PodActive PodPhase = iota
	PodFailed
	PodSucceeded
)

func (p PodPhase) String() string { return [...]string{"active", "failed", "succeeded"}[p] }

// ProjectNode reduces a Node to what the matrix reads. It shares the Node's
// maps and slices, which must not change afterwards.
func ProjectNode(n *corev1.Node) NodeInfo {
	return NodeInfo{Name: n.Name, Labels: n.Labels, Taints: n.Spec.Taints}
}

// ProjectHealth reduces a Node to whether it is out of order.
func ProjectHealth(n *corev1.Node) NodeHealth {
	h := NodeHealth{Name: n.Name}
	h.Fault, h.Silent, h.Since = node.Fault(n)
	if h.Since = h.Since.UTC(); n.DeletionTimestamp != nil {
		h.Since = time.Time{} // somebody wants it so
	}
	return h
}

// Equal reports whether both describe the same node for the purpose of placement.
// When a taint was added does not matter.
func (n NodeInfo) Equal(o NodeInfo) bool {
	return n.Name == o.Name && maps.Equal(n.Labels, o.Labels) &&
		slices.EqualFunc(n.Taints, o.Taints, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value })
}

// ProjectPod reduces a Pod to what the matrix reads, as a pod of the DaemonSet
// owner.
func ProjectPod(p *corev1.Pod, owner types.UID) PodInfo {
	info := PodInfo{
		UID: p.UID, Name: p.Name, Owner: owner,
		Node: pod.TargetNode(p), Bound: pod.IsBound(p),
		Revision:    content.RevisionOf(p.Labels[appsv1.ControllerRevisionHashLabelKey], p.Labels),
		Terminating: pod.IsTerminating(p),
		Unplaceable: unplaceableBecause(p),
		Created:     utc(p.CreationTimestamp),
		BoundAt:     pod.BoundSince(p).UTC(), Restarts: pod.Restarts(p),
	}
	if p.DeletionTimestamp != nil {
		info.EndsBy, info.WasReady = utc(*p.DeletionTimestamp), wasReady(p)
	}
	info.Trouble, info.Cause = pod.Trouble(p)
	info.Certain = info.Cause != ""
	info.Before = replaced(p)
	switch p.Status.Phase {
	case corev1.PodFailed:
		info.Phase = PodFailed
	case corev1.PodSucceeded:
		info.Phase = PodSucceeded
	}
	if since, ready := pod.ReadySince(p); ready {
		info.Ready, info.ReadySince = true, since.UTC()
	}
	return info
}

// wasReady tells of a pod on its way out whether it surely was ready when somebody asked for
// that: it is still, or has stopped being it since.
func wasReady(p *corev1.Pod) bool {
	asked := p.DeletionTimestamp.Time
	if g := p.DeletionGracePeriodSeconds; g != nil {
		asked = asked.Add(-time.Duration(*g) * time.Second)
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue || !c.LastTransitionTime.Time.Before(asked)
		}
	}
	return false
}

// Replaced is the annotation of a pod that came in its turn in a rollout: whether the daemon
// that it replaced was available. Behind it stands the pod's own name, so that it says
// nothing in a template, or copied to another pod.
const Replaced = "everynode.io/replaced"

// ReplacedText is the annotation's value for the pod of that name.
func ReplacedText(before course.Before, pod string) string { return string(before) + " " + pod }

// replaced reads the annotation.
func replaced(p *corev1.Pod) course.Before {
	for _, before := range []course.Before{course.WasAvailable, course.WasNotAvailable} {
		if p.Annotations[Replaced] == ReplacedText(before, p.Name) {
			return before
		}
	}
	return ""
}

// utc makes times comparable with ==.
func utc(t metav1.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Time.UTC()
}

// older orders the pods of a cell: bound ones first, then by age, then by name.
// The first is the one that is kept and reported.
func older(a, b *PodInfo) int {
	if a.Bound != b.Bound {
		if a.Bound {
			return -1
		}
		return 1
	}
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	switch {
	case a.Name < b.Name:
		return -1
	case a.Name > b.Name:
		return 1
	}
	return 0
}

// Status is the part of a DaemonSet's status that the matrix computes. It is
// comparable.
type Status struct {
	ObservedGeneration                                                     int64
	Desired, Current, Misscheduled, Ready, Updated, Available, Unavailable int32
}

// ProjectStatus reads a DaemonSet's status.
func ProjectStatus(s *appsv1.DaemonSetStatus) Status {
	return Status{
		ObservedGeneration: s.ObservedGeneration,
		Desired:            s.DesiredNumberScheduled, Current: s.CurrentNumberScheduled,
		Misscheduled: s.NumberMisscheduled, Ready: s.NumberReady,
		Updated: s.UpdatedNumberScheduled, Available: s.NumberAvailable,
		Unavailable: s.NumberUnavailable,
	}
}

// Apply writes the status into s and leaves its other fields alone.
func (st Status) Apply(s *appsv1.DaemonSetStatus) {
	s.ObservedGeneration = st.ObservedGeneration
	s.DesiredNumberScheduled, s.CurrentNumberScheduled = st.Desired, st.Current
	s.NumberMisscheduled, s.NumberReady = st.Misscheduled, st.Ready
	s.UpdatedNumberScheduled, s.NumberAvailable = st.Updated, st.Available
	s.NumberUnavailable = st.Unavailable
}
