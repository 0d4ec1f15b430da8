// Package startup has the nodes of a round that join start the daemons of DaemonSets in an order, while pods wait for
// them.
package startup

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/joining"
)

// Together is how many nodes leave, and come back, at a time.
const Together = 2

// Each does something with that many nodes, and names them.
func Each(do func(i int) (name string, err error)) (string, error) {
	var names []string
	for i := range Together {
		name, err := do(i)
		if err != nil {
			return strings.Join(names, ", "), err
		}
		names = append(names, name)
	}
	return strings.Join(names, ", "), nil
}

// Make makes a NodeStartup with a group of each DaemonSet. None is waited for long: it may be gone, or not work.
func Make(ctx context.Context, to *everynode.Client, namespace string, sets ...string) error {
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "order"}}
	for _, name := range sets {
		s.Spec.Groups = append(s.Spec.Groups, v1alpha1.StartupGroup{
			DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: namespace, Name: name}}, Timeout: "3s",
			Then: v1alpha1.ThenOpen,
		})
	}
	_, err := to.NodeStartups().Create(ctx, s, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the NodeStartup: %w", err)
	}
	return nil
}

// Wait makes so many pods of which a node has room for one, out of the way of all else in the round.
func Wait(ctx context.Context, to kubernetes.Interface, pods int) error {
	for i := range pods {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("waits-%02d", i)}}
		p.Spec.Containers = []corev1.Container{{
			Name: "main", Image: "everynode.io/demo:v1", Ports: []corev1.ContainerPort{{ContainerPort: 7777, HostPort: 7777}},
		}}
		_, err := to.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, p, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make a pod that waits for a node: %w", err)
		}
	}
	return nil
}

// Gates changes the taints of nodes that start, as who may patch nodes.
type Gates struct{ Client kubernetes.Interface }

// SetGate implements nodestartup.GateWriter.
func (g Gates) SetGate(ctx context.Context, n *corev1.Node, _, gate *corev1.Taint, without []string) error {
	raw, err := joining.Regate(n, gate, without)
	if err != nil {
		return err
	}
	_, err = g.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.JSONPatchType, raw, metav1.PatchOptions{})
	if apierrors.IsInvalid(err) { // the node is another by now
		return apierrors.NewConflict(corev1.Resource("nodes"), n.Name, err)
	}
	return err
}
