// Package tailor makes up the DaemonSetVariants of a round: what people write, and write wrongly; pure.
package tailor

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/variants/molds"
	"github.com/everynode/everynode/test/chaos/history/wish"
)

// Names is how many names of variants a round uses.
const Names = 4

// Places are the classes and sizes of simulated nodes, dealt out in turn.
const Places = `
- {key: ` + molds.ClassLabel + `, values: [s, m, l, m]}
`

// Sizes are those of simulated nodes.
const Sizes = `sizes:
- {cpu: 2, memory: 4Gi}
- {cpu: 8, memory: 32Gi}
- {cpu: 32, memory: 128Gi}
`

// Rigid is a fault of nodes with RigidPlaces, which cannot resize pods that run.
const Rigid = `- {name: rigid, nodes: {matchLabels: {` + wish.UserKey + `rigid: "yes"}}, noResize: {}}
`

// RigidPlaces are labels dealt out in turn.
const RigidPlaces = `
- {key: ` + wish.UserKey + `rigid, values: ["no", "yes", "no", "yes", "no"]}
`

// classes are the values of the label of classes.
var classes = []string{"s", "m", "l"}

// Name is the name that a number stands for.
func Name(pick int) string { return fmt.Sprintf("variant-%d", pick%Names) }

// Request has a template's container request what variants change.
func Request(t *corev1.PodTemplateSpec) {
	t.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
	}
}

func class(in ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: molds.ClassLabel, Operator: metav1.LabelSelectorOpIn, Values: in},
	}}
}

// main are formulas for the container of all templates.
func main(cpu, memory, limit, disk string) map[string]v1alpha1.VariantResources {
	r := v1alpha1.VariantResources{Requests: map[corev1.ResourceName]string{}}
	for name, text := range map[corev1.ResourceName]string{
		corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory, corev1.ResourceEphemeralStorage: disk,
	} {
		if text != "" {
			r.Requests[name] = text
		}
	}
	if limit != "" {
		r.Limits = map[corev1.ResourceName]string{corev1.ResourceMemory: limit}
	}
	return map[string]v1alpha1.VariantResources{"main": r}
}

// good are formulas that can be had everywhere, those that replace a pod last.
var good = []map[string]v1alpha1.VariantResources{
	nil,
	main(molds.Hundredth, molds.Memory, "", ""), main(molds.Fiftieth, "", "", ""),
	main(molds.ByClass, molds.Fixed, "", ""),
	main("", molds.Memory, "", ""), main(molds.ByClass, "", "", ""), main(molds.Hundredth, molds.Fixed, "", ""),
	main("", molds.Fixed, molds.Twentieth, ""), main(molds.Fiftieth, molds.Fixed, "", molds.Disk),
}

// bad are formulas that fail on some nodes or on all, that have no room, or that no node can give.
var bad = []map[string]v1alpha1.VariantResources{
	main(molds.NoSuch, "", "", ""), main(molds.NotSmall, "", "", ""), main("", molds.Memory, molds.BelowAll, ""),
	main(molds.Greedy, "", "", ""), main(molds.Impossible, "", "", ""),
	{"other": v1alpha1.VariantResources{Requests: map[corev1.ResourceName]string{corev1.ResourceCPU: molds.ByClass}}},
}

var patches = []string{
	"", "", "", "", "", "", molds.Level("one"), molds.Level("two"), molds.Note, molds.Restart, molds.Amounts,
}

// Set makes one of many variants that can be had. Those of different names are in no conflict.
func Set(s *v1alpha1.DaemonSetVariantSpec, name string, pick, other int) {
	*s = v1alpha1.DaemonSetVariantSpec{Priority: 10}
	for i := range Names {
		if name == Name(i) {
			s.Priority = int32(i)
		}
	}
	s.Nodes = []*metav1.LabelSelector{nil, class("s"), class("m", "l"), class("l")}[pick%4]
	if pick/4%3 == 0 {
		s.DaemonSets = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "example.com/app", Operator: metav1.LabelSelectorOpIn, Values: []string{"set-0"}},
		}}
	}
	s.Resources = good[other%len(good)]
	if text := patches[other/len(good)%len(patches)]; text != "" {
		s.Patch = &runtime.RawExtension{Raw: []byte(text)}
	}
}

// Spoil makes it one that cannot be had.
func Spoil(s *v1alpha1.DaemonSetVariantSpec, pick int) { s.Resources = bad[pick%len(bad)] }

// Refuse makes it one whose pods the API refuses.
func Refuse(s *v1alpha1.DaemonSetVariantSpec) {
	s.Patch = &runtime.RawExtension{Raw: []byte(molds.Refused)}
}

// Clash makes it one in conflict with another.
func Clash(s *v1alpha1.DaemonSetVariantSpec, with *v1alpha1.DaemonSetVariantSpec) {
	s.Priority, s.Nodes, s.DaemonSets = with.Priority, with.Nodes.DeepCopy(), with.DaemonSets.DeepCopy()
}
