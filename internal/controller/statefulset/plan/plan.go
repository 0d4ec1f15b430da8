// Package plan decides what a StatefulSet needs, one step at a time: pods to create
// and to delete, and what its status says. It reads nothing but its arguments.
//
// Pods have numbers. With the policy OrderedReady nothing is done about a pod before
// all with lower numbers are available, and pods go from the highest number down, one
// at a time. With Parallel they come and go together; only their replacement has a
// limit then.
package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/pod"
	"github.com/everynode/everynode/internal/objects/podtemplate"
)

// Revision is a version of the template. Pods carry its name.
type Revision struct {
	Name     string
	Template *corev1.PodTemplateSpec
}

// Input is what a decision is made from. Nothing in it is changed.
type Input struct {
	Set *appsv1.StatefulSet
	// Pods are all that belong to the set, whatever became of them.
	Pods []*corev1.Pod
	// Update is the set's own template, Current the one that pods below the partition
	// keep: the last that was rolled out to all.
	Update, Current Revision
	// Hold means that nothing is to be done about pods now: it was tried.
	Hold bool
	Now  time.Time
}

// Step is the next thing to do. At most one of its parts is set; with none there is
// nothing to do until Next.
type Step struct {
	Create []*corev1.Pod
	Delete []*corev1.Pod
	// Mark are pods that get the labels that say which number they have.
	Mark   []*corev1.Pod
	Status *appsv1.StatefulSetStatus
	// Next is when to look again although nothing has happened; zero for never.
	Next time.Time
	// Reason says why, also if there is nothing to do.
	Reason string
}

// Acts reports whether the step is about pods.
func (s Step) Acts() bool { return len(s.Create)+len(s.Delete)+len(s.Mark) > 0 }

// Next returns the next step.
func Next(in Input) Step {
	s := look(in)
	act := Step{Reason: "the set is being deleted"}
	if in.Set.DeletionTimestamp == nil {
		act = s.act()
	}
	if act.Acts() && !in.Hold {
		return act
	}
	if status := s.status(); !apiequality.Semantic.DeepEqual(in.Set.Status, status) {
		return Step{Status: &status, Reason: "the status is not what there is"}
	}
	return Step{Next: s.next, Reason: act.Reason}
}

// More reports whether there is something to do about pods once Hold is over.
func More(in Input) bool {
	in.Hold = false
	return Next(in).Acts()
}

// Number is the number in the name of a pod of the set.
func Number(set, pod string) (int, bool) {
	text, ours := strings.CutPrefix(pod, set+"-")
	n, err := strconv.Atoi(text)
	return n, ours && err == nil && n >= 0 && strconv.Itoa(n) == text
}

type sight struct {
	Input
	first     int
	replicas  []*corev1.Pod // by number, from first on; nil where there is none
	condemned []*corev1.Pod // the highest number first
	ordered   bool
	next      time.Time
}

func look(in Input) *sight {
	s := &sight{Input: in, ordered: in.Set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement}
	if o := in.Set.Spec.Ordinals; o != nil {
		s.first = int(o.Start)
	}
	s.replicas = make([]*corev1.Pod, ptr.Deref(in.Set.Spec.Replicas, 1))
	for _, p := range in.Pods {
		n, ours := Number(in.Set.Name, p.Name)
		switch i := n - s.first; {
		case !ours:
		case i >= 0 && i < len(s.replicas):
			s.replicas[i] = p
		default:
			s.condemned = append(s.condemned, p)
		}
		if since, ready := pod.ReadySince(p); ready && !since.IsZero() {
			if at := since.Add(time.Duration(in.Set.Spec.MinReadySeconds) * time.Second); at.After(in.Now) &&
				(s.next.IsZero() || at.Before(s.next)) {
				s.next = at
			}
		}
	}
	slices.SortFunc(s.condemned, func(a, b *corev1.Pod) int { return cmp.Compare(s.number(b), s.number(a)) })
	return s
}

func (s *sight) number(p *corev1.Pod) int {
	n, _ := Number(s.Set.Name, p.Name)
	return n
}

func running(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && pod.IsReady(p) }

// well reports whether a pod does its work and stays.
func (s *sight) well(p *corev1.Pod) bool {
	return running(p) && !pod.IsTerminating(p) && pod.IsAvailable(p, s.Set.Spec.MinReadySeconds, s.Now)
}

// broken reports whether a pod should do its work and does not.
func (s *sight) broken(p *corev1.Pod) bool { return !s.well(p) && !pod.IsTerminal(p) }

func wait(format string, args ...any) Step { return Step{Reason: fmt.Sprintf(format, args...)} }

// act says what to do about pods: missing and broken ones first, then those that are
// too many, then those of another revision.
func (s *sight) act() Step {
	if step, done := s.fill(); done {
		return step
	}
	if step, done := s.shrink(); done {
		return step
	}
	return s.update()
}

// fill makes what is missing and removes what is over, from the lowest number up. It
// reports whether nothing else may be done now.
func (s *sight) fill() (Step, bool) {
	var out Step
	for i, p := range s.replicas {
		before := len(out.Create) + len(out.Delete) + len(out.Mark)
		switch {
		case p == nil:
			out.Create = append(out.Create, s.newPod(s.first+i))
		case pod.IsTerminating(p):
			if s.ordered {
				return wait("pod %s is on its way out", p.Name), true
			}
		case pod.IsTerminal(p):
			out.Delete = append(out.Delete, p)
		case !s.marked(p):
			out.Mark = append(out.Mark, p)
		case s.ordered && !s.well(p):
			return wait("pod %s is not available", p.Name), true
		}
		if s.ordered && len(out.Create)+len(out.Delete)+len(out.Mark) > before {
			out.Reason = fmt.Sprintf("number %d is not as it should be", s.first+i)
			return out, true
		}
	}
	// One thing at a time; the others follow.
	switch {
	case len(out.Delete) > 0:
		return Step{Delete: out.Delete, Reason: "pods are over"}, true
	case len(out.Create) > 0:
		return Step{Create: out.Create, Reason: "pods are missing"}, true
	case len(out.Mark) > 0:
		return Step{Mark: out.Mark, Reason: "pods do not say which number they have"}, true
	}
	return Step{}, false
}

// shrink removes pods with numbers that there are no more, from the highest down.
func (s *sight) shrink() (Step, bool) {
	var out []*corev1.Pod
	for i, p := range s.condemned {
		if pod.IsTerminating(p) {
			if s.ordered {
				return wait("pod %s is on its way out", p.Name), true
			}
			continue
		}
		if s.ordered && s.broken(p) && slices.ContainsFunc(s.condemned[i+1:], s.broken) {
			return wait("pod %s and one before it are not available", p.Name), true
		}
		out = append(out, p)
		if s.ordered {
			break
		}
	}
	return Step{Delete: out, Reason: fmt.Sprintf("%d pods are wanted", len(s.replicas))}, len(out) > 0
}

// update removes pods of another revision, from the highest number down to the
// partition, as many as may be unavailable at a time. One that is not available
// anyway may go without making it worse, unless those of the new revision are the
// ones that do not come up.
func (s *sight) update() Step {
	if s.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return wait("pods are replaced when somebody deletes them")
	}
	most := s.mostUnavailable()
	down, stuck := s.unavailable()
	if stuck >= most {
		return wait("%d pods are not available, %d may be", stuck, most)
	}
	var out []*corev1.Pod
	for i := len(s.replicas) - 1; i >= max(0, s.partition()-s.first) && len(out) < most-stuck; i-- {
		p := s.replicas[i]
		if p == nil || pod.IsTerminating(p) || s.revision(p) == s.Update.Name {
			continue
		}
		if s.well(p) {
			if down >= most {
				continue
			}
			down++
		}
		out = append(out, p)
	}
	return Step{Delete: out, Reason: fmt.Sprintf("pods have another revision than %s", s.Update.Name)}
}

// unavailable counts the pods that are not available, and those of them that no
// update removes.
func (s *sight) unavailable() (down, stuck int) {
	for _, p := range s.replicas {
		if p == nil || !s.well(p) {
			down++
			if p == nil || pod.IsTerminating(p) || s.revision(p) == s.Update.Name {
				stuck++
			}
		}
	}
	return down, stuck
}

func (s *sight) revision(p *corev1.Pod) string {
	return p.Labels[appsv1.ControllerRevisionHashLabelKey]
}

func (s *sight) partition() int {
	if r := s.Set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		return int(ptr.Deref(r.Partition, 0))
	}
	return 0
}

func (s *sight) mostUnavailable() int {
	r := s.Set.Spec.UpdateStrategy.RollingUpdate
	if r == nil || r.MaxUnavailable == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, len(s.replicas), true)
	if err != nil {
		return 1
	}
	return max(1, n)
}

// newPod returns the pod of a number. Below the partition it has the template that
// the others there have.
func (s *sight) newPod(number int) *corev1.Pod {
	r := s.Update
	if s.Set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && number < s.first+s.partition() {
		r = s.Current
	}
	p := podtemplate.Pod(r.Template, s.Set.Namespace, "", *metav1.NewControllerRef(s.Set, setKind))
	p.Name = fmt.Sprintf("%s-%d", s.Set.Name, number)
	p.Spec.Hostname, p.Spec.Subdomain = p.Name, s.Set.Spec.ServiceName
	mountClaims(s.Set, p)
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	maps.Copy(p.Labels, Marks(s.Set, p))
	p.Labels[appsv1.ControllerRevisionHashLabelKey] = r.Name
	return p
}

// Marks are the labels that say which number a pod has.
func Marks(set *appsv1.StatefulSet, p *corev1.Pod) map[string]string {
	n, _ := Number(set.Name, p.Name)
	return map[string]string{appsv1.StatefulSetPodNameLabel: p.Name, appsv1.PodIndexLabel: strconv.Itoa(n)}
}

func (s *sight) marked(p *corev1.Pod) bool {
	for key, value := range Marks(s.Set, p) {
		if p.Labels[key] != value {
			return false
		}
	}
	return true
}

// status says what there is. When all pods have the new revision, it is the current
// one from then on.
func (s *sight) status() appsv1.StatefulSetStatus {
	old := s.Set.Status
	out := appsv1.StatefulSetStatus{
		ObservedGeneration: s.Set.Generation, CollisionCount: old.CollisionCount, Conditions: old.Conditions,
		CurrentRevision: s.Current.Name, UpdateRevision: s.Update.Name,
	}
	for _, p := range append(slices.Clone(s.replicas), s.condemned...) {
		if p == nil {
			continue
		}
		out.Replicas++
		if running(p) {
			out.ReadyReplicas++
			if pod.IsAvailable(p, s.Set.Spec.MinReadySeconds, s.Now) {
				out.AvailableReplicas++
			}
		}
		if pod.IsTerminating(p) {
			continue
		}
		if s.revision(p) == s.Current.Name {
			out.CurrentReplicas++
		}
		if s.revision(p) == s.Update.Name {
			out.UpdatedReplicas++
		}
	}
	all := int32(len(s.replicas))
	if s.Set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && out.UpdatedReplicas == all &&
		out.ReadyReplicas == all && out.Replicas == all {
		out.CurrentReplicas, out.CurrentRevision = out.UpdatedReplicas, out.UpdateRevision
	}
	return out
}
