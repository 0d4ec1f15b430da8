package diagnosis

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/everynode/everynode/api/v1alpha1"
)

// variants repeats what DaemonSetVariants say is wrong, and finds those that choose no DaemonSet.
func variants(f *findings, c *Cluster) {
	for _, v := range c.Variants {
		subject := "daemonsetvariant/" + v.Name
		look := c.Kubectl + " describe daemonsetvariant -n " + v.Namespace + " " + v.Name
		if applies := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.VariantApplies); meta.IsStatusConditionFalse(
			v.Status.Conditions, v1alpha1.VariantApplies) {
			f.add(Warning, subject, look, "%s", applies.Message)
		}
		if tied := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.VariantConflict); meta.IsStatusConditionTrue(
			v.Status.Conditions, v1alpha1.VariantConflict) {
			f.add(Warning, subject, look, "%s", tied.Message)
		}
		if v.Status.ObservedGeneration == v.Generation && v.Status.DaemonSets == 0 {
			f.add(Warning, subject, look, "it chooses no DaemonSet of namespace %s", v.Namespace)
		}
	}
}
