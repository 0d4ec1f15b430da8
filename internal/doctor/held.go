package doctor

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// heldNodes is on how many nodes it is looked for pods that are not started yet: after a loss of power there are many
// such nodes, and all say the same.
const heldNodes = 20

// held looks for pods that do not start yet, on the nodes whose machines started again last.
func (l *looker) held(ctx context.Context) error {
	again := slices.DeleteFunc(slices.Clone(l.seen.Nodes), func(n *corev1.Node) bool {
		return nodestartup.TaintOf(n.Spec.Taints) == nil || n.Annotations[nodestartup.ClosedAnnotation] == ""
	})
	slices.SortFunc(again, func(a, b *corev1.Node) int {
		return cmp.Or(nodestartup.Born(b).Compare(nodestartup.Born(a)), cmp.Compare(a.Name, b.Name))
	})
	for _, n := range again[:min(heldNodes, len(again))] {
		list, err := l.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
			FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", n.Name).String(),
			ResourceVersion: cached.ResourceVersion,
		})
		if err != nil {
			return err
		}
		for _, p := range pointers(list.Items) {
			if nodestartup.WaitsFor(p) != "" {
				l.seen.Held = append(l.seen.Held, p)
			}
		}
	}
	return nil
}
