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
	for _, m := range s.ConfigMaps {
		if l, ok := revision.Read(m); ok {
			lists[m.Name] = l
		}
	}
	needed, sets := map[types.UID]map[string]bool{}, map[types.UID]bool{}
	need := func(d *appsv1.DaemonSet, id string) {
		if needed[d.UID] == nil {
			needed[d.UID] = map[string]bool{}
		}
		name := d.Name + "-" + id
		needed[d.UID][name] = true
		for _, m := range lists[name].Members {
			needed[d.UID][m.Copy] = true
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
	for _, m := range s.ConfigMaps {
		if of := owner(m); m.Labels[revision.ContentLabel] != "" && sets[of] && !needed[of][m.Name] {
			out = append(out, fmt.Sprintf("ConfigMap %s is content that nobody needs", m.Name))
		}
	}
	return out
}
