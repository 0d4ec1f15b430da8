// Package plan decides when pods must leave their nodes because of NoExecute taints.
//
// A pod that does not tolerate a taint leaves at once; one that tolerates it for
// tolerationSeconds leaves that long after the taint and the pod have both been there; the
// shortest time wins. Of several tolerations that match one taint the first counts.
// not-ready and unreachable are two words for one trouble: when one replaces the other,
// time goes on from the first.
//
// The package is pure: times are arguments. A pod's event costs O(log N), a change of a
// node's taints O(P log N) for its P pods, any other node event nothing.
package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/loop/deadline"
)

// Pod is what matters of a pod that runs on a node and is not being deleted.
type Pod struct {
	types.NamespacedName
	UID  types.UID
	Node string
	// Tolerations are shared with the caller's object: read only.
	Tolerations []corev1.Toleration
}

// Ready lists what changed since the last call.
type Ready struct {
	// Evict holds pods whose time has come.
	Evict []Pod
	// Cancelled holds pods that were to be evicted later and may stay.
	Cancelled []Pod
}

type taint struct {
	corev1.Taint
	since time.Time
}

type node struct {
	taints []taint
	pods   map[types.UID]*entry
}

type state uint8

const (
	stays     state = iota
	scheduled       // its timer is armed
	evicted         // handed out by Ready; whoever took it sees it through
)

type entry struct {
	pod   Pod
	since time.Time // when it was first seen on its node
	state state
	leave deadline.Timer[*entry]
}

// Planner knows all nodes with NoExecute taints and all pods on nodes. One owner at a time.
type Planner struct {
	nodes     map[string]*node
	pods      map[types.UID]*entry
	leaving   deadline.Timers[*entry]
	cancelled []Pod
}

// New makes an empty planner.
func New() *Planner {
	return &Planner{nodes: map[string]*node{}, pods: map[types.UID]*entry{}}
}

// UpdateNode tells a node's taints.
func (p *Planner) UpdateNode(name string, taints []corev1.Taint, now time.Time) {
	n := p.nodes[name]
	if n == nil && !slices.ContainsFunc(taints, noExecute) {
		return
	}
	if n == nil {
		n = p.node(name)
	}
	var current []taint
	for i := range taints {
		if noExecute(taints[i]) {
			current = append(current, taint{taints[i], n.since(&taints[i], now)})
		}
	}
	same := slices.EqualFunc(n.taints, current, func(a, b taint) bool {
		return a.MatchTaint(&b.Taint) && a.Value == b.Value
	})
	n.taints = current
	if !same {
		for _, e := range n.pods {
			p.schedule(e, now)
		}
	}
	p.dropIfUnused(name)
}

// DeleteNode tells that a node is gone; so are its taints.
func (p *Planner) DeleteNode(name string) {
	p.UpdateNode(name, nil, time.Time{})
}

// UpdatePod tells of a pod on a node. A pod that is being deleted is told by DeletePod.
func (p *Planner) UpdatePod(pod Pod, now time.Time) {
	e := p.pods[pod.UID]
	if e != nil && e.pod.Node == pod.Node && slices.EqualFunc(e.pod.Tolerations, pod.Tolerations, sameToleration) {
		return
	}
	if e != nil && e.pod.Node != pod.Node {
		p.DeletePod(pod.UID) // cannot happen through the API; the new node counts afresh
		e = nil
	}
	if e == nil {
		e = &entry{since: now}
		e.leave.Owner = e
		p.pods[pod.UID] = e
		p.node(pod.Node).pods[pod.UID] = e
	}
	e.pod = pod
	p.schedule(e, now)
}

// DeletePod tells that a pod is gone or going.
func (p *Planner) DeletePod(uid types.UID) {
	e := p.pods[uid]
	if e == nil {
		return
	}
	p.leaving.Stop(&e.leave)
	delete(p.pods, uid)
	delete(p.nodes[e.pod.Node].pods, uid)
	p.dropIfUnused(e.pod.Node)
}

// Ready returns the pods whose time has come and those that may stay after all.
func (p *Planner) Ready(now time.Time) Ready {
	r := Ready{Cancelled: p.cancelled}
	p.cancelled = nil
	for timer := p.leaving.Pop(now); timer != nil; timer = p.leaving.Pop(now) {
		e := timer.Owner
		e.state = evicted
		r.Evict = append(r.Evict, e.pod)
	}
	return r
}

// Pending tells that Ready has something to say now.
func (p *Planner) Pending(now time.Time) bool {
	return len(p.cancelled) > 0 || p.leaving.Due(now)
}

// NextTick is when Ready will next have something to say without any news.
func (p *Planner) NextTick() (time.Time, bool) {
	return p.leaving.Next()
}

// Due reports whether a pod that Ready handed out must still go.
func (p *Planner) Due(uid types.UID) (Pod, bool) {
	e := p.pods[uid]
	if e == nil || e.state != evicted {
		return Pod{}, false
	}
	return e.pod, true
}

// schedule computes the pod's deadline again.
func (p *Planner) schedule(e *entry, now time.Time) {
	at, leaves := p.due(e, now)
	before := e.state
	switch {
	case leaves:
		e.state = scheduled
		p.leaving.Set(&e.leave, at)
	case before == scheduled:
		p.leaving.Stop(&e.leave)
		e.state = stays
		p.cancelled = append(p.cancelled, e.pod)
	default:
		e.state = stays
	}
}

// due is when the pod must leave; false if it may stay.
func (p *Planner) due(e *entry, now time.Time) (time.Time, bool) {
	var earliest time.Time
	for _, t := range p.nodes[e.pod.Node].taints {
		toleration := findToleration(e.pod.Tolerations, &t.Taint)
		if toleration == nil {
			return now, true
		}
		if toleration.TolerationSeconds == nil {
			continue
		}
		start := t.since
		if e.since.After(start) {
			start = e.since
		}
		at := start.Add(max(0, time.Duration(*toleration.TolerationSeconds)*time.Second))
		if earliest.IsZero() || at.Before(earliest) {
			earliest = at
		}
	}
	return earliest, !earliest.IsZero()
}

func (p *Planner) node(name string) *node {
	n := p.nodes[name]
	if n == nil {
		n = &node{pods: map[types.UID]*entry{}}
		p.nodes[name] = n
	}
	return n
}

func (p *Planner) dropIfUnused(name string) {
	if n := p.nodes[name]; n != nil && len(n.pods) == 0 && len(n.taints) == 0 {
		delete(p.nodes, name)
	}
}

// since is when the node got the taint, as far as was seen.
func (n *node) since(t *corev1.Taint, now time.Time) time.Time {
	for i := range n.taints {
		old := &n.taints[i]
		if (old.Key == t.Key && old.Value == t.Value) || (silence(old.Key) && silence(t.Key)) {
			return old.since
		}
	}
	return now
}

func silence(key string) bool {
	return key == corev1.TaintNodeNotReady || key == corev1.TaintNodeUnreachable
}

func noExecute(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }

func findToleration(tolerations []corev1.Toleration, t *corev1.Taint) *corev1.Toleration {
	for i := range tolerations {
		if tolerations[i].ToleratesTaint(klog.Logger{}, t, false) {
			return &tolerations[i]
		}
	}
	return nil
}

func sameToleration(a, b corev1.Toleration) bool {
	if (a.TolerationSeconds == nil) != (b.TolerationSeconds == nil) {
		return false
	}
	if a.TolerationSeconds != nil && *a.TolerationSeconds != *b.TolerationSeconds {
		return false
	}
	a.TolerationSeconds, b.TolerationSeconds = nil, nil
	return a == b
}
