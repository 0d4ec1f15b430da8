// Package gates decides which pods of a DaemonSet whose images are pinned may ask a registry, beside another DaemonSet
// controller. That one makes pods when it likes. So admission has each pod that is to ask wait behind a gate, and here
// one at a time is let through. When its node has told the digests, those that still wait are deleted: they never
// started, and are made again with the digests. It is pure.
//
// What is decided follows from the objects alone. So whoever leads next goes on, whatever became of the last one.
package gates

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/pins"
	"github.com/everynode/everynode/internal/objects/pod"
)

// earlyFor is how long pods wait behind the gate before anything is known of their DaemonSet's change. A daemon is
// worth more than that all have the same bits.
const earlyFor = time.Minute

// Deed is what is done with a pod.
type Deed uint8

// The deeds. Open lets it through the gate. Remake has it deleted, so that it is made again as pods are made by now.
const (
	Open Deed = iota
	Remake
)

func (d Deed) String() string { return [...]string{"open", "remake"}[d] }

// Move is what is due for one pod, and why.
type Move struct {
	Pod  *corev1.Pod
	Deed Deed
	Why  string
}

// Stand is all that a decision goes by.
type Stand struct {
	Now time.Time
	// Led is since when this leader leads: it may not have heard of what the one before did.
	Led time.Time
	// Pins tells that images of the DaemonSet are pinned; Status is its rollout's, nil if there is none.
	Pins   bool
	Status *v1alpha1.DaemonSetRolloutStatus
	// Template is that of the revision with the hash, nil if it is not known.
	Template func(hash string) *corev1.PodSpec
	// Faulty reports whether a node is out of order.
	Faulty func(node string) bool
	// Pods are those of the DaemonSet.
	Pods []*corev1.Pod
}

// Decide says what is due now, in the order of the pods' names.
func Decide(s Stand) (due []Move) {
	waiting := map[string][]*corev1.Pod{}
	for _, p := range s.Pods {
		hash := hashOf(p)
		gated := pinning.IsGated(&p.Spec)
		switch why := s.outdated(p, hash, gated); {
		case p.DeletionTimestamp != nil, gated && s.written(hash):
		case gated && s.Template(hash) == nil && s.knows(hash): // it is read by and by, and then made with its digests
		case why != "" && s.Template(hash) != nil:
			due = append(due, Move{p, Remake, why})
		case gated:
			waiting[hash] = append(waiting[hash], p)
		}
	}
	for hash, pods := range waiting {
		due = append(due, s.one(hash, pods)...)
	}
	slices.SortFunc(due, func(a, b Move) int { return cmp.Compare(a.Pod.Name, b.Pod.Name) })
	return due
}

// written reports whether the gate is the template's own. Whoever wrote it there takes it off too: a pod that is made
// again would have it once more.
func (s *Stand) written(hash string) bool {
	template := s.Template(hash)
	return template != nil && pinning.IsGated(template)
}

// target is the template that the change goes to; "" while nothing is known of it.
func (s *Stand) target() string {
	if s.Status == nil {
		return ""
	}
	return content.TemplateOf(s.Status.TargetRevision)
}

// outdated says why a pod would be made otherwise by now; "" if it would not, or it may have begun to run.
func (s *Stand) outdated(p *corev1.Pod, hash string, gated bool) string {
	switch {
	case !gated && !s.isLeftOver(p, hash):
		return ""
	case !s.Pins:
		return "its images are as written"
	case s.target() == "":
		return ""
	case hash != s.target() && hash != content.TemplateOf(s.Status.StableRevision):
		return "it is of a template that no node is to have"
	case s.knows(hash):
		return "the digests of its images are known"
	case s.fails(hash) && s.Status.StableRevision != "":
		return "its template has failed"
	}
	return ""
}

// isLeftOver reports whether a pod was let through, has pulled nothing, and would pull what its tag names some day.
func (s *Stand) isLeftOver(p *corev1.Pod, hash string) bool {
	_, was := pinning.LetThrough(p)
	if !was || pinning.HasPulled(p) || !s.Pins || !s.knows(hash) {
		return false
	}
	template := s.Template(hash)
	return template != nil && pinning.Asks(template, p)
}

// knows reports whether the digests of a template are known.
func (s *Stand) knows(hash string) bool {
	return s.Status != nil && pinning.Of(s.Status.Images, hash) != nil
}

// fails reports whether a template is one that goes to no node any more, since it has failed.
func (s *Stand) fails(hash string) bool {
	return hash == s.target() && hash != content.TemplateOf(s.Status.StableRevision) &&
		rolloutpolicy.HasFailed(s.Status, s.Status.TargetRevision)
}

// one lets one of the pods through that wait for the digests of their template, unless one that was before may still
// tell them.
func (s *Stand) one(hash string, pods []*corev1.Pod) []Move {
	switch {
	case s.target() == "":
		if late := s.late(pods); late != nil {
			return late
		}
	case s.fails(hash):
		return nil // a new DaemonSet's: until somebody has it tried again
	}
	if s.awaits(hash) {
		return nil
	}
	first := slices.MinFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(order(s.Faulty(pod.TargetNode(a)), s.Faulty(pod.TargetNode(b))),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return []Move{{first, Open, "its node is the first of its template"}}
}

// late are the pods that have waited for too long until something is known of the change of their DaemonSet.
func (s *Stand) late(pods []*corev1.Pod) (due []Move) {
	for _, p := range pods {
		if !p.CreationTimestamp.Add(earlyFor).After(s.Now) && !s.Led.Add(earlyFor).After(s.Now) {
			due = append(due, Move{p, Open, "nothing is known of the change of its DaemonSet"})
		}
	}
	return due
}

// awaits reports whether a pod of the template that may ask, or has asked, may still tell the digests.
func (s *Stand) awaits(hash string) bool {
	return slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool {
		if hashOf(p) != hash || pinning.IsGated(&p.Spec) {
			return false
		}
		info := fact.OfPod(p, "")
		return pins.MayTell(s.Template(hash), &info, p) && pins.Since(&info, p, s.Now).Add(pins.Patience).After(s.Now)
	})
}

func hashOf(p *corev1.Pod) string { return p.Labels[appsv1.ControllerRevisionHashLabelKey] }

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Opening is a merge patch that lets a pod through, unless it has changed since.
func Opening(p *corev1.Pod, now time.Time) ([]byte, error) {
	var left []corev1.PodSchedulingGate
	for _, g := range p.Spec.SchedulingGates {
		if g.Name != pinning.Gate {
			left = append(left, g)
		}
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID, "resourceVersion": p.ResourceVersion,
			"annotations": map[string]string{pinning.Annotation: pinning.Mark(now, p.Name)}},
		"spec": map[string]any{"schedulingGates": left},
	})
	if err != nil {
		return nil, fmt.Errorf("let pod %s/%s through: %w", p.Namespace, p.Name, err)
	}
	return raw, nil
}
