package copies

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/revision"
)

// left names copies and lists of DaemonSets that nobody needs any more: no pod has their content, and no rollout that
// is followed speaks of it. Nor does a rollout outlive its policy for copies that have gone.
func left(s history.State) (out []string) {
	lists := listsOf(s)
	needed, sets := map[types.UID]map[revision.Ref]bool{}, map[types.UID]bool{}
	need := func(d *appsv1.DaemonSet, id string) {
		if needed[d.UID] == nil {
			needed[d.UID] = map[revision.Ref]bool{}
		}
		name := d.Name + "-" + id
		needed[d.UID][revision.Ref{Kind: revision.MapKind, Name: name}] = true
		for _, m := range lists[name].Members {
			needed[d.UID][m.Refers()] = true
		}
	}
	for _, d := range s.Sets {
		sets[d.UID] = true
		for _, p := range s.Pods {
			if owner(p) == d.UID {
				need(d, revision.ContentOf(p))
			}
		}
	}
	for _, r := range s.Rollouts {
		for _, d := range s.Sets {
			switch {
			case r.Labels[history.OwnerLabel] != string(d.UID):
			case history.PolicyGone(r):
				out = append(out, speaksFor(s, r, d)...)
			default:
				_, stable := revision.Split(r.Status.StableRevision)
				_, target := revision.Split(r.Status.TargetRevision)
				need(d, stable)
				need(d, target)
			}
		}
	}
	for _, o := range s.Contents {
		ref, of := revision.RefOf(o), owner(o)
		if o.GetLabels()[revision.ContentLabel] != "" && sets[of] && !needed[of][ref] {
			out = append(out, fmt.Sprintf("%s is content that nobody needs", ref))
		}
	}
	return out
}

// listsOf are the lists of contents, by their names.
func listsOf(s history.State) map[string]revision.List {
	lists := map[string]revision.List{}
	for _, m := range s.Contents {
		if l, ok := revision.Read(m); ok {
			lists[m.GetName()] = l
		}
	}
	return lists
}

// speaksFor says that a rollout which has outlived its policy speaks of content that has gone.
func speaksFor(s history.State, r *v1alpha1.DaemonSetRollout, d *appsv1.DaemonSet) []string {
	if r.Status.Content == nil || copied(s, d.UID) {
		return nil
	}
	return []string{fmt.Sprintf("rollout %s speaks of copies that have gone", r.Name)}
}

// copied reports whether copies or lists of a DaemonSet are there.
func copied(s history.State, set types.UID) bool {
	return slices.ContainsFunc(s.Contents, func(o metav1.Object) bool {
		return o.GetLabels()[revision.ContentLabel] != "" && owner(o) == set
	})
}
