package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/podtemplate"
)

// set is a ReplicaSet and what is decided about it.
type set struct {
	before      *appsv1.ReplicaSet // as it is; for one to be created, as it will be
	created     bool
	replicas    int32
	minReady    int32
	annotations map[string]string // nil if unchanged
	reason      string
}

func newSet(rs *appsv1.ReplicaSet) *set {
	return &set{
		before:   rs,
		reason:   "what it says of the Deployment changes",
		replicas: ptr.Deref(rs.Spec.Replicas, 1),
		minReady: rs.Spec.MinReadySeconds,
	}
}

// seen reports whether its status is about its present size.
func (s *set) seen() bool {
	return s.created || s.before.Status.ObservedGeneration >= s.before.Generation
}

// available is how many of its pods serve, at most as many as it is to have: there
// may be too many still.
func (s *set) available() int32 { return min(s.before.Status.AvailableReplicas, s.replicas) }

func (s *set) annotation(key string) (string, bool) {
	have := s.before.Annotations
	if s.annotations != nil {
		have = s.annotations
	}
	value, ok := have[key]
	return value, ok
}

func (s *set) annotate(key, value string) {
	if have, ok := s.annotation(key); ok && have == value {
		return
	}
	if s.annotations == nil {
		s.annotations = maps.Clone(s.before.Annotations)
	}
	if s.annotations == nil {
		s.annotations = map[string]string{}
	}
	s.annotations[key] = value
}

// number returns the number that an annotation holds, if it holds one.
func (s *set) number(key string) (int32, bool) {
	text, _ := s.annotation(key)
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), err == nil
}

func (s *set) revision() int64 {
	text, _ := s.annotation(RevisionAnnotation)
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// result is the set as it is to be, nil if nothing changes.
func (s *set) result() *appsv1.ReplicaSet {
	same := s.replicas == ptr.Deref(s.before.Spec.Replicas, 1) && s.minReady == s.before.Spec.MinReadySeconds &&
		s.annotations == nil
	if same && !s.created {
		return nil
	}
	// A copy of the struct is enough: the set is shared.
	next := *s.before
	next.Spec.Replicas, next.Spec.MinReadySeconds = &s.replicas, s.minReady
	if s.annotations != nil {
		next.Annotations = s.annotations
	}
	return &next
}

func newRollout(in Input) *rollout {
	r := &rollout{
		in:         in,
		d:          in.Deployment,
		limits:     newLimits(in.Deployment),
		conditions: slices.Clone(in.Deployment.Status.Conditions),
	}
	for _, rs := range in.Sets {
		r.sets = append(r.sets, newSet(rs))
	}
	slices.SortFunc(r.sets, func(a, b *set) int {
		return cmp.Or(a.before.CreationTimestamp.Compare(b.before.CreationTimestamp.Time),
			cmp.Compare(a.revision(), b.revision()), cmp.Compare(a.before.Name, b.before.Name))
	})
	for _, s := range r.sets {
		if podtemplate.Same(&s.before.Spec.Template, &r.d.Spec.Template) {
			r.fresh = s
			break
		}
	}
	return r
}

// old returns the sets with other templates, the oldest first.
func (r *rollout) old() []*set {
	return slices.DeleteFunc(slices.Clone(r.sets), func(s *set) bool { return s == r.fresh })
}

// activeOf returns the sets that are to have pods.
func activeOf(sets []*set) []*set {
	return slices.DeleteFunc(slices.Clone(sets), func(s *set) bool { return s.replicas == 0 })
}

// total is the number of pods that the sets are to have.
func total(sets []*set) (n int32) {
	for _, s := range sets {
		n += s.replicas
	}
	return n
}

// resize decides the size of a set and notes in the set what it is a part of.
func (r *rollout) resize(s *set, replicas int32, format string, args ...any) {
	if s.replicas != replicas {
		why := fmt.Sprintf(format, args...)
		r.explain("%s %s", s.before.Name, why)
		if s.replicas != ptr.Deref(s.before.Spec.Replicas, 1) {
			why = s.reason + ", then " + why
		}
		s.reason = why
	}
	s.replicas = replicas
	s.annotate(DesiredReplicasAnnotation, strconv.Itoa(int(r.limits.replicas)))
	s.annotate(MaxReplicasAnnotation, strconv.Itoa(int(r.limits.most())))
}

// limits is how many pods there may be during a rolling update.
type limits struct{ replicas, surge, unavailable int32 }

// newLimits resolves percentages. If both come out as zero, one pod may be
// unavailable: the update would stand still otherwise.
func newLimits(d *appsv1.Deployment) limits {
	l := limits{replicas: ptr.Deref(d.Spec.Replicas, 1)}
	rolling := d.Spec.Strategy.RollingUpdate
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || rolling == nil {
		return l
	}
	l.surge, l.unavailable = share(rolling.MaxSurge, l.replicas, true), share(rolling.MaxUnavailable, l.replicas, false)
	if l.surge == 0 && l.unavailable == 0 {
		l.unavailable = 1
	}
	l.unavailable = min(l.unavailable, l.replicas)
	return l
}

// share is a number or a percentage of all; what makes no sense counts as zero.
func share(value *intstr.IntOrString, all int32, up bool) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(value, intstr.FromInt32(0)), int(all), up)
	if err != nil {
		return 0
	}
	return int32(n)
}

// most is how many pods there may be, least how many must be available.
func (l limits) most() int32  { return l.replicas + l.surge }
func (l limits) least() int32 { return l.replicas - l.unavailable }
