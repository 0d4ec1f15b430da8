package nodeauth

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
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
// from it: its taints, and labels that are promised to be out of its reach.
func checkNode(node string, a admission.Attributes) error {
	name := a.GetName()
	created, _ := a.GetObject().(*corev1.Node)
	if a.GetOperation() == admission.Create && created != nil {
		name = created.Name
	}
	if name != node {
		return fmt.Errorf("node %q is not allowed to modify node %q", node, name)
	}
	switch a.GetOperation() {
	case admission.Create:
		if created == nil {
			return unexpected(a.GetObject())
		}
		if forbidden := forbiddenLabels(nil, created.Labels); len(forbidden) > 0 {
			return fmt.Errorf("is not allowed to set the following labels: %s", strings.Join(forbidden, ", "))
		}
	case admission.Update:
		old, ok := a.GetOldObject().(*corev1.Node)
		if !ok || created == nil {
			return unexpected(a.GetOldObject())
		}
		if !equality.Semantic.DeepEqual(created.Spec.Taints, old.Spec.Taints) {
			return fmt.Errorf("node %q is not allowed to modify taints", node)
		}
		if !equality.Semantic.DeepEqual(created.OwnerReferences, old.OwnerReferences) {
			return fmt.Errorf("node %q is not allowed to modify ownerReferences", node)
		}
		if forbidden := forbiddenLabels(old.Labels, created.Labels); len(forbidden) > 0 {
			return fmt.Errorf("is not allowed to modify labels: %s", strings.Join(forbidden, ", "))
		}
	}
	return nil
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
