// Package peer is what the API server tells nodes of each other: what it takes to
// reach the pods of another node, and nothing else. docs/design/0012 says why.
package peer

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion and Resource are where it is served: list and watch.
var GroupVersion = schema.GroupVersion{Group: "network.everynode.io", Version: "v1"}

// Names of the resource and its kinds.
const (
	Resource = "nodes"
	Kind     = "Node"
	ListKind = "NodeList"
)

// Node is one of the cluster's. Of its metadata there are name, UID, creation time and
// resource version.
type Node struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Addresses are the node's own, in its network: those of the type InternalIP.
	Addresses []string `json:"addresses,omitempty"`
	// PodCIDRs are the networks of its pods.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
}

// NodeList is all of them.
type NodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Node `json:"items"`
}

// Of is what others learn of a node. It shares nothing with it.
func Of(n *corev1.Node) *Node {
	out := &Node{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: Kind},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, CreationTimestamp: n.CreationTimestamp,
			ResourceVersion: n.ResourceVersion},
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out.Addresses = append(out.Addresses, a.Address)
		}
	}
	out.PodCIDRs = append(out.PodCIDRs, n.Spec.PodCIDRs...)
	if len(out.PodCIDRs) == 0 && n.Spec.PodCIDR != "" {
		out.PodCIDRs = []string{n.Spec.PodCIDR}
	}
	return out
}

// DeepCopyObject implements runtime.Object.
func (n *Node) DeepCopyObject() runtime.Object {
	out := *n
	n.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Addresses = append([]string(nil), n.Addresses...)
	out.PodCIDRs = append([]string(nil), n.PodCIDRs...)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *NodeList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Node, len(l.Items))
	for i := range l.Items {
		if n, ok := l.Items[i].DeepCopyObject().(*Node); ok {
			out.Items[i] = *n
		}
	}
	return &out
}
