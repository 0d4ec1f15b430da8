package copies

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/revision"
)

// left names copies and lists of DaemonSets that nobody needs any more: no pod has their content, and no rollout speaks
// of it.
func left(s history.State) (out []string) {
	lists := map[string]revision.List{} // by their names
	for _, m := range s.Contents {
		if l, ok := revision.Read(m); ok {
			lists[m.GetName()] = l
		}
	}
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
			if r.Labels[history.OwnerLabel] == string(d.UID) {
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
