package fact

import (
	"cmp"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/loop/deadline"
	"github.com/everynode/everynode/internal/objects/pod"
)

// Pod is all that the matrix reads of a Pod. It is comparable.
type Pod struct {
	UID  types.UID
	Name string
	// Owner is the UID of the DaemonSet that controls the pod.
	Owner types.UID
	// Node is the node the pod is bound to or meant for; "" for none.
	Node     string
	Bound    bool
	Revision string
	Phase    Phase
	Ready    bool
	// ReadySince is when Ready became true; only set while Ready.
	ReadySince  time.Time
	Terminating bool
	// EndsBy is until when it was to be gone; only set while Terminating.
	EndsBy time.Time `json:",omitzero"`
	// Grace is how long its end was to take, from when that was asked for.
	Grace time.Duration `json:",omitempty"`
	// WasReady tells that it was ready when its deletion was asked for; only set while
	// Terminating.
	WasReady bool `json:",omitempty"`
	// Unplaceable is why the scheduler finds no room for the pod on its node;
	// "" while it has not said so.
	Unplaceable string
	// Gates are the scheduling gates that keep it from being bound, by their names.
	Gates string `json:",omitempty"`
	// BoundAt is when it was bound, Restarts how often a container of it restarted.
	BoundAt  time.Time `json:",omitzero"`
	Restarts int32     `json:",omitempty"`
	// Trouble is why it does not come up; Certain tells that waiting will not help.
	Trouble string `json:",omitempty"`
	Certain bool   `json:",omitempty"`
	// Cause is what it is then.
	Cause pod.Cause `json:",omitempty"`
	// Before is what the daemon was like that it replaced.
	Before standing.Before `json:",omitempty"`
	// Pointed is when its volumes were pointed at the content of the revision, and Restarts counts from then on;
	// Mounted when they show it, which the pod's readiness is judged Settle after. Zero for one made for it.
	Pointed time.Time     `json:",omitzero"`
	Mounted time.Time     `json:",omitzero"`
	Settle  time.Duration `json:",omitempty"`
	// Resized tells that it was given other amounts of cpu and memory since: Pointed is when that was asked for, and of
	// Mounted is known only that it has them.
	Resized bool `json:",omitempty"`
	// Between tells that it asks for amounts of a resize that ended half way, and does not have them yet.
	Between bool `json:",omitempty"`
	// Fetch is what its node says of images that it was asked for by the pod.
	Fetch fetch.Report `json:",omitzero"`
	// Adopting says that the pod is not ours yet but about to be: it fills its
	// cell, and nothing is done to it.
	Adopting bool
	Created  time.Time
}

// Phase is a pod's phase as far as it matters here.
type Phase uint8

// The three cases: alive (or about to be), ended badly, ended well.
const (
	PodActive Phase = iota
	PodFailed
	PodSucceeded
)

func (p Phase) String() string { return [...]string{"active", "failed", "succeeded"}[p] }

// OfPod reduces a Pod to what the matrix reads, as a pod of the DaemonSet owner. See Point.
func OfPod(p *corev1.Pod, owner types.UID) Pod {
	info := Pod{
		UID: p.UID, Name: p.Name, Owner: owner,
		Node: pod.TargetNode(p), Bound: pod.IsBound(p),
		Revision:    content.RevisionOf(p.Labels[appsv1.ControllerRevisionHashLabelKey], p.Labels),
		Terminating: pod.IsTerminating(p),
		Unplaceable: unplaceableBecause(p), Gates: pod.Gates(p),
		Created: utc(p.CreationTimestamp),
		BoundAt: pod.BoundSince(p).UTC(), Restarts: pod.Restarts(p),
	}
	if p.DeletionTimestamp != nil {
		info.EndsBy, info.Grace, info.WasReady = utc(*p.DeletionTimestamp), graceOf(p), wasReady(p)
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

// Point adds which content the volumes of the running pod were pointed at. That is known only where the API server
// keeps the annotation for the controller. What cannot be read is none of ours.
func (i *Pod) Point(p *corev1.Pod) {
	to, err := content.PointingOf(p.Annotations)
	if err != nil || to == nil || to.Content != content.IDOf(i.Revision) {
		return
	}
	i.Pointed, i.Settle = to.At.UTC(), to.Settle.Duration
	i.Before = standing.Before(to.Was)
	i.since(p, to.Restarts, to.RestartsBy)
	c := pod.Condition(p, content.MountedCondition)
	switch {
	case c == nil || !strings.HasPrefix(c.Message, to.Key()):
	case c.Status != corev1.ConditionTrue:
		i.Trouble = cmp.Or(i.Trouble, strings.TrimPrefix(c.Message, to.Key()+": "))
	default:
		i.Mounted = deadline.Later(utc(c.LastTransitionTime), i.Pointed)
	}
}

// since has only what happens to containers after they had restarted so often count: how they ended before is no
// trouble of what the pod was given then. A version that did not write it for each container knew only the most.
func (i *Pod) since(p *corev1.Pod, most int32, by map[string]int32) {
	if len(by) == 0 && most > 0 {
		i.Restarts = max(0, pod.Restarts(p)-most)
		return
	}
	i.Restarts = pod.RestartsSince(p, by)
	i.Trouble, i.Cause = pod.TroubleSince(p, by)
	i.Certain = i.Cause != ""
}

// graceOf is how long the end of a pod was to take.
func graceOf(p *corev1.Pod) time.Duration {
	if g := p.DeletionGracePeriodSeconds; g != nil {
		return time.Duration(*g) * time.Second
	}
	return 0
}

// wasReady tells of a pod on its way out whether it surely was ready when somebody asked for
// that: it is still, or has stopped being it since.
func wasReady(p *corev1.Pod) bool {
	asked := p.DeletionTimestamp.Add(-graceOf(p))
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
func ReplacedText(before standing.Before, pod string) string { return string(before) + " " + pod }

// replaced reads the annotation.
func replaced(p *corev1.Pod) standing.Before {
	for _, before := range []standing.Before{standing.WasAvailable, standing.WasNotAvailable} {
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

// Older orders the pods of a cell: bound ones first, then by age, then by name.
// The first is the one that is kept and reported.
func Older(a, b *Pod) int {
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
