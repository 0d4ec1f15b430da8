package rolloutpolicy

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Choose returns the policy that counts for a DaemonSet with these labels: of those of its namespace that select it the
// oldest, or the first by name of those of one age; nil if there is none. A selector that cannot be read selects
// nothing. Policies that are being deleted count until they are gone.
func Choose(policies []*v1alpha1.RolloutPolicy, namespace string, daemonSet map[string]string) *v1alpha1.RolloutPolicy {
	var chosen *v1alpha1.RolloutPolicy
	for _, p := range policies {
		if p.Namespace != namespace || !Selects(p, daemonSet) {
			continue
		}
		if chosen == nil || older(p, chosen) {
			chosen = p
		}
	}
	return chosen
}

// Selects reports whether the policy's selector takes a DaemonSet with these labels.
func Selects(p *v1alpha1.RolloutPolicy, daemonSet map[string]string) bool {
	if p.Spec.Selector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(daemonSet))
}

// HasFailed reports whether a rollout's status says that a revision is not tried again by itself.
func HasFailed(s *v1alpha1.DaemonSetRolloutStatus, revision string) bool {
	return slices.Contains(s.EarlierFailures, revision) ||
		slices.ContainsFunc(s.FailedRevisions, func(f v1alpha1.FailedRevision) bool { return f.Revision == revision })
}

func older(a, b *v1alpha1.RolloutPolicy) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}
