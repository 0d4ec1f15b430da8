package plan

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/podtemplate"
)

// Annotations that say what a set is in its Deployment; kubectl reads them.
const (
	// RevisionAnnotation numbers the templates of a Deployment, on it and on its sets.
	RevisionAnnotation = "deployment.kubernetes.io/revision"
	// RevisionHistoryAnnotation lists the numbers that a set had before.
	RevisionHistoryAnnotation = "deployment.kubernetes.io/revision-history"
	// DesiredReplicasAnnotation is what the Deployment wanted when the set got its size.
	DesiredReplicasAnnotation = "deployment.kubernetes.io/desired-replicas"
	// MaxReplicasAnnotation is that with its surge.
	MaxReplicasAnnotation = "deployment.kubernetes.io/max-replicas"
)

// notCopied are the annotations that stay with the Deployment, or are about the set.
var notCopied = []string{
	corev1.LastAppliedConfigAnnotation, RevisionAnnotation, RevisionHistoryAnnotation,
	DesiredReplicasAnnotation, MaxReplicasAnnotation, appsv1.DeprecatedRollbackTo,
}

// historyLength is how many characters of earlier numbers a set keeps.
const historyLength = 2000

// number sees to it that the new set, if there is one, has the highest number and
// the Deployment's annotations.
func (r *rollout) number() {
	if r.fresh == nil {
		return
	}
	s, again := r.fresh, false
	r.copyAnnotations(s)
	s.minReady = r.d.Spec.MinReadySeconds
	before, had := s.annotation(RevisionAnnotation)
	if next := r.nextRevision(); s.revision() < next && (before == "" || isNumber(before)) {
		s.annotate(RevisionAnnotation, strconv.FormatInt(next, 10))
		if had {
			s.annotate(RevisionHistoryAnnotation, remember(s.before.Annotations[RevisionHistoryAnnotation], before))
		}
		s.reason = "holds the present template again"
		r.explain("%s %s", s.before.Name, s.reason)
		again = true
	}
	r.plan.Revision, _ = s.annotation(RevisionAnnotation)
	// Going back is a rollout of its own: its deadline counts from here.
	if again && !r.d.Spec.Paused || r.progressing() == nil {
		r.progress(corev1.ConditionTrue, reasonFound, "Found new replica set %q", s.before.Name)
	}
}

func isNumber(text string) bool {
	_, err := strconv.ParseInt(text, 10, 64)
	return err == nil
}

// nextRevision is one above those of the old sets.
func (r *rollout) nextRevision() (n int64) {
	for _, s := range r.old() {
		n = max(n, s.revision())
	}
	return n + 1
}

// remember appends a number to a list and lets go of the earliest if it gets long.
func remember(list, number string) string {
	if list == "" {
		return number
	}
	list += "," + number
	for len(list) > historyLength {
		_, list, _ = strings.Cut(list, ",")
	}
	return list
}

func (r *rollout) copyAnnotations(s *set) {
	for key, value := range r.d.Annotations {
		if !slices.Contains(notCopied, key) {
			s.annotate(key, value)
		}
	}
}

// create decides to make a set for the present template.
func (r *rollout) create() {
	template := r.d.Spec.Template.DeepCopy()
	hash := podtemplate.Hash(&r.d.Spec.Template, r.d.Status.CollisionCount)
	template.Labels = withHash(template.Labels, hash)
	selector := r.d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withHash(selector.MatchLabels, hash)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.d.Name + "-" + hash, Namespace: r.d.Namespace, Labels: maps.Clone(template.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r.d, Kind)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        new(int32),
			MinReadySeconds: r.d.Spec.MinReadySeconds,
			Selector:        selector,
			Template:        *template,
		},
	}
	s := newSet(rs)
	s.created = true
	number := strconv.FormatInt(r.nextRevision(), 10)
	r.copyAnnotations(s)
	s.annotate(RevisionAnnotation, number)
	r.resize(s, r.room(s), "is new, with as many pods as there is room for")
	r.explain("%s is new", rs.Name)
	r.sets, r.fresh = append(r.sets, s), s
	r.plan.Revision = number
	r.progress(corev1.ConditionTrue, reasonCreated, "Created new replica set %q", rs.Name)
}

// Kind is how Deployments are referred to.
var Kind = appsv1.SchemeGroupVersion.WithKind("Deployment")

func withHash(labels map[string]string, hash string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	return out
}

// cleanUp lets go of the oldest templates beyond what the history keeps.
func (r *rollout) cleanUp() {
	limit := ptr.Deref(r.d.Spec.RevisionHistoryLimit, math.MaxInt32)
	if limit == math.MaxInt32 {
		return
	}
	old := slices.DeleteFunc(r.old(), func(s *set) bool { return s.before.DeletionTimestamp != nil })
	slices.SortStableFunc(old, func(a, b *set) int { return cmp.Compare(a.revision(), b.revision()) })
	for _, s := range old[:max(0, len(old)-int(limit))] {
		rs := s.before
		if rs.Status.Replicas == 0 && s.replicas == 0 && rs.Generation <= rs.Status.ObservedGeneration {
			r.plan.Delete = append(r.plan.Delete, rs)
		}
	}
	if len(r.plan.Delete) > 0 {
		r.explain("%d old templates are more than the %d that the history keeps", len(old), limit)
	}
}
