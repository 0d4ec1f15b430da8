package survey

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// seenPod is a pod that the view has judged, in the round in which it was last there.
type seenPod struct {
	pod   *corev1.Pod
	round int
}

// Renew makes the view one of the same DaemonSet in a later survey, at the cost of the nodes and pods that are other
// objects there. False, and nothing is done, where more than these has changed: then a new view is needed.
//
// A view that is renewed remembers, as the controller does, what a new one only knows as far as the rollout's status
// says it: that is to be made from time to time.
func (v *View) Renew(s *Survey) bool {
	ds := s.DaemonSet(v.DaemonSet.Namespace, v.DaemonSet.Name)
	if ds == nil || !v.same(s, ds) {
		return false
	}
	v.core.Step(fact.Now{Time: s.Now})
	if v.core.Variants != nil {
		v.core.Variants.Tick(s.Now)
	}
	v.renewNodes(s)
	v.renewPods(s)
	v.DaemonSet, v.survey, v.cells, v.busy, v.apart = ds, s, nil, nil, nil
	v.Rollout = s.Rollout(ds)
	v.core.Settle()
	v.core.Ready()
	v.Status, _ = v.core.Rollout(ds.UID)
	return true
}

// same reports whether the DaemonSet is to be judged by the same rules.
func (v *View) same(s *Survey, ds *appsv1.DaemonSet) bool {
	was := v.DaemonSet
	a, b := ds.Status.CollisionCount, was.Status.CollisionCount
	if ds.UID != was.UID || ds.Generation != was.Generation || !sameCount(a, b) {
		return false
	}
	known := make(map[*appsv1.ControllerRevision]bool, len(v.revisions))
	for _, r := range v.revisions {
		known[r] = true
	}
	found := 0
	for _, r := range s.Revisions {
		if belongings.OwnerOf(r) != ds.UID {
			continue
		}
		found++
		if !known[r] {
			return false
		}
	}
	return found == len(known) && s.Policy(ds) == v.survey.Policy(was) && sameRollout(s.Rollout(ds), v.Rollout) &&
		v.sameVariants(s, ds)
}

func sameCount(a, b *int32) bool { return a == b || a != nil && b != nil && *a == *b }

// sameRollout: what moves while a step goes on is counted by the view itself.
func sameRollout(a, b *v1alpha1.DaemonSetRollout) bool {
	if a == nil || b == nil {
		return a == b
	}
	was, is := &a.Status, &b.Status
	return a.UID == b.UID && a.Generation == b.Generation && was.Phase == is.Phase && was.Step == is.Step &&
		was.TargetRevision == is.TargetRevision && was.StableRevision == is.StableRevision
}

func (v *View) renewNodes(s *Survey) {
	for _, n := range s.Nodes {
		if v.survey.nodes[n.Name] != n {
			v.core.Step(fact.OfNode(n))
			v.core.Step(v.health(n))
			v.tellNode(n, false)
		}
	}
	for name, n := range v.survey.nodes {
		if s.nodes[name] == nil {
			v.core.Step(fact.NodeGone(name))
			v.tellNode(n, true)
		}
	}
}

func (v *View) renewPods(s *Survey) {
	uid := v.DaemonSet.UID
	if v.seen == nil {
		v.seen = map[types.UID]seenPod{}
		for _, pods := range v.survey.byOwner[uid] {
			for _, p := range pods {
				v.seen[p.UID] = seenPod{p, v.round}
			}
		}
	}
	v.round++
	there := 0
	for _, pods := range s.byOwner[uid] {
		for _, p := range pods {
			if v.seen[p.UID].pod != p {
				v.tellPod(p.UID, p)
				v.core.Step(v.Project(p))
			}
			v.seen[p.UID] = seenPod{p, v.round}
			there++
		}
	}
	if there == len(v.seen) {
		return
	}
	for uid, was := range v.seen {
		if was.round != v.round {
			v.core.Step(fact.PodGone(uid))
			v.tellPod(uid, nil)
			delete(v.seen, uid)
		}
	}
}
