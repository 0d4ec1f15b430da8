package nodeauth

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// ownLabels are those labels of kubernetes.io and k8s.io that a node sets itself.
var ownLabels = []string{
	corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable,
	corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
	corev1.LabelInstanceType, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	corev1.LabelWindowsBuild, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

// Labels below these belong to the node, and to people who watch over nodes.
const (
	kubeletDomain = "kubelet.kubernetes.io"
	nodeDomain    = "node.kubernetes.io"
)

// checkNode lets a node change itself, but not what steers pods to it or away
// from it: its taints, and labels that are promised to be out of its reach. Nor its
// pod networks, of which other nodes make routes.
func (r *Restriction) checkNode(ctx context.Context, node string, a admission.Attributes) error {
	if name := nameIn(a); name != node {
		return fmt.Errorf("node %q is not allowed to modify node %q", node, name)
	}
	if a.GetOperation() != admission.Create && a.GetOperation() != admission.Update {
		return nil
	}
	now, ok := a.GetObject().(*corev1.Node)
	if !ok {
		return unexpected(a.GetObject())
	}
	if a.GetOperation() == admission.Create {
		if err := checkNewNode(node, now); err != nil {
			return err
		}
		return r.checkNodeReport(ctx, node, now, &corev1.Node{})
	}
	before, ok := a.GetOldObject().(*corev1.Node)
	if !ok {
		return unexpected(a.GetOldObject())
	}
	if err := checkChangedNode(node, now, before, a.GetSubresource()); err != nil {
		return err
	}
	return r.checkNodeReport(ctx, node, now, before)
}

func checkNewNode(node string, now *corev1.Node) error {
	if now.Spec.ConfigSource != nil { //nolint:staticcheck // Deprecated, and still to be refused.
		return fmt.Errorf("node %q is not allowed to create pods with a non-nil configSource", node)
	}
	if forbidden := forbiddenLabels(nil, now.Labels); len(forbidden) > 0 {
		return fmt.Errorf("node %q is not allowed to set the following labels: %s", node, strings.Join(forbidden, ", "))
	}
	if now.Spec.PodCIDR != "" || len(now.Spec.PodCIDRs) > 0 {
		return fmt.Errorf("node %q is not allowed to set its own podCIDR and podCIDRs", node)
	}
	return nil
}

func checkChangedNode(node string, now, before *corev1.Node, subresource string) error {
	//nolint:staticcheck // Deprecated, and still to be refused.
	if now.Spec.ConfigSource != nil && !alike.Values(now.Spec.ConfigSource, before.Spec.ConfigSource) {
		return fmt.Errorf("node %q is not allowed to update configSource to a new non-nil configSource", node)
	}
	if !sameTaints(now, before, subresource) {
		return fmt.Errorf("node %q is not allowed to modify taints", node)
	}
	if forbidden := forbiddenLabels(before.Labels, now.Labels); len(forbidden) > 0 {
		return fmt.Errorf("is not allowed to modify labels: %s", strings.Join(forbidden, ", "))
	}
	if !alike.Values(now.OwnerReferences, before.OwnerReferences) {
		return fmt.Errorf("node %q is not allowed to modify ownerReferences", node)
	}
	// A report of the status changes nothing of these, whatever it carries.
	if subresource == "" &&
		(now.Spec.PodCIDR != before.Spec.PodCIDR || !slices.Equal(now.Spec.PodCIDRs, before.Spec.PodCIDRs)) {
		return fmt.Errorf("node %q is not allowed to modify its own podCIDR and podCIDRs", node)
	}
	return nil
}

// sameTaints reports whether a node leaves its taints as they are. With the report of a machine that has started again
// admission closes the node; what else a report says of that taint changes nothing.
func sameTaints(now, before *corev1.Node, subresource string) bool {
	return alike.Values(now.Spec.Taints, before.Spec.Taints) || subresource == "status" &&
		alike.Values(nodestartup.With(now.Spec.Taints, nil), nodestartup.With(before.Spec.Taints, nil))
}

// forbiddenLabels lists the labels, in order, that differ and are not the node's.
func forbiddenLabels(before, after map[string]string) []string {
	var forbidden []string
	for key, value := range after {
		if old, ok := before[key]; (!ok || old != value) && !isOwnLabel(key) {
			forbidden = append(forbidden, key)
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok && !isOwnLabel(key) {
			forbidden = append(forbidden, key)
		}
	}
	slices.Sort(forbidden)
	return forbidden
}

func isOwnLabel(key string) bool {
	domain, _, hasDomain := strings.Cut(key, "/")
	if !hasDomain || slices.Contains(ownLabels, key) {
		return true
	}
	below := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	if below(kubeletDomain) || below(nodeDomain) {
		return true
	}
	// Among the rest is node-restriction.kubernetes.io, which is made for labels
	// that a node must not set.
	return !below("kubernetes.io") && !below("k8s.io")
}
