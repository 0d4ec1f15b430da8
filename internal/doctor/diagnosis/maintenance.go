package diagnosis

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/loop/deadline"
	"github.com/everynode/everynode/internal/node"
)

// maintained tells of nodes that have been in maintenance for so long that whoever began it may have forgotten to end
// it: until then they get no new revision under a policy.
func maintained(f *findings, c *Cluster) {
	var kinds []corev1.NodeConditionType
	names, first := map[corev1.NodeConditionType][]string{}, map[corev1.NodeConditionType]time.Time{}
	for _, n := range c.Nodes {
		for _, long := range node.LongMaintenances(n, c.Now) {
			kind := long.Type
			names[kind] = append(names[kind], n.Name)
			first[kind] = deadline.Sooner(first[kind], long.LastTransitionTime.Time)
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	for _, kind := range slices.Compact(kinds) {
		of := names[kind]
		slices.Sort(of)
		f.add(Warning, nodeSubject(of), c.Kubectl+" describe node "+of[0],
			"%s in maintenance (%s) for more than a day, the first for %s, and no change of a RolloutPolicy begins there: %s",
			many(len(of), "%d node has been", "%d nodes have been"), kind, long(c.Now.Sub(first[kind])), some(of))
	}
}
