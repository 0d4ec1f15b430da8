package history

import (
	"cmp"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/internal/objects/podtemplate"
)

// Owner is whose revisions a plan is about: a workload of apps/v1.
type Owner struct {
	Object metav1.Object
	Kind   string
	// Template is its present one, Collisions how often the name of a revision was
	// taken by something else.
	Template   *corev1.PodTemplateSpec
	Collisions *int32
}

// OfDaemonSet returns a DaemonSet as an owner.
func OfDaemonSet(d *appsv1.DaemonSet) Owner {
	return Owner{d, "DaemonSet", &d.Spec.Template, d.Status.CollisionCount}
}

// OfStatefulSet returns a StatefulSet as an owner.
func OfStatefulSet(s *appsv1.StatefulSet) Owner {
	return Owner{s, "StatefulSet", &s.Spec.Template, s.Status.CollisionCount}
}

// Input is what a plan is made from.
type Input struct {
	Owner Owner
	// Revisions are those that belong to the owner.
	Revisions []*appsv1.ControllerRevision
	// Normalize fills a template's defaults in; nil does without.
	Normalize func(*corev1.PodTemplateSpec)
}

// Plan says what to do about an owner's revisions, in the order of its
// fields. Revisions in it are those of the input, not to be changed.
type Plan struct {
	// Label are revisions that lack the hash label; it becomes their name.
	Label []*appsv1.ControllerRevision
	// Current holds the present template; nil if Create makes it.
	Current *appsv1.ControllerRevision
	// Create is the revision to make; nil if there is one.
	Create *appsv1.ControllerRevision
	// Renumber is the number Current must get; 0 if it keeps its own.
	Renumber int64
	// Duplicates hold the present template too: their pods get Current's hash,
	// then they are deleted.
	Duplicates []*appsv1.ControllerRevision
	// Old are the other revisions, the oldest first.
	Old []*appsv1.ControllerRevision
}

// Settled reports whether the plan asks for no write.
func (p *Plan) Settled() bool {
	return len(p.Label) == 0 && p.Create == nil && p.Renumber == 0 && len(p.Duplicates) == 0
}

// Compute makes the plan.
func Compute(in Input) (Plan, error) {
	patch, err := Patch(in.Owner.Template)
	if err != nil {
		return Plan{}, err
	}
	var plan Plan
	var same []*appsv1.ControllerRevision
	for _, r := range sorted(in.Revisions) {
		if r.Labels[appsv1.ControllerRevisionHashLabelKey] == "" {
			plan.Label = append(plan.Label, r)
		}
		if Holds(r, in.Owner.Template, patch, in.Normalize) {
			same = append(same, r)
		} else {
			plan.Old = append(plan.Old, r)
		}
	}
	number := int64(1)
	if len(plan.Old) > 0 {
		number = plan.Old[len(plan.Old)-1].Revision + 1
	}
	if len(same) == 0 {
		plan.Create = newRevision(in.Owner, patch, number)
		return plan, nil
	}
	plan.Current = same[len(same)-1]
	plan.Duplicates = same[:len(same)-1]
	if plan.Current.Revision < number {
		plan.Renumber = number
	}
	return plan, nil
}

// Cleanup returns the revisions to delete, the oldest first, so that at most
// limit old ones stay. Those whose hash is live on a pod stay in any case.
func Cleanup(old []*appsv1.ControllerRevision, limit int, live func(hash string) bool) []*appsv1.ControllerRevision {
	excess := len(old) - limit
	var out []*appsv1.ControllerRevision
	for _, r := range sorted(old) {
		if excess <= 0 {
			break
		}
		if live(HashOf(r)) {
			continue
		}
		out = append(out, r)
		excess--
	}
	return out
}

// sorted orders by number, then age, then name.
func sorted(in []*appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	out := slices.Clone(in)
	slices.SortFunc(out, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func newRevision(o Owner, patch []byte, number int64) *appsv1.ControllerRevision {
	hash := podtemplate.Hash(o.Template, o.Collisions)
	labels := maps.Clone(o.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[appsv1.ControllerRevisionHashLabelKey] = hash
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: Name(o.Object.GetName(), hash), Namespace: o.Object.GetNamespace(),
			Labels: labels, Annotations: maps.Clone(o.Object.GetAnnotations()),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o.Object,
				appsv1.SchemeGroupVersion.WithKind(o.Kind))},
		},
		Data:     runtime.RawExtension{Raw: patch},
		Revision: number,
	}
}

// Name returns the name of a revision. Very long names of owners are cut so that
// the name fits.
func Name(owner, hash string) string {
	const room = 223 // a name has 253 characters, a hash at most 10
	return owner[:min(len(owner), room)] + "-" + hash
}
