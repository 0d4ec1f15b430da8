package fit

import (
	"container/list"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/fit/hostport"
	"github.com/everynode/everynode/internal/fit/resources"
)

// Node is one node with the sums over its pods. Rules read it; only this package writes it.
type Node struct {
	Name string
	// UID tells it from others that have had its name.
	UID           types.UID
	Labels        map[string]string
	Taints        []corev1.Taint
	Unschedulable bool
	// Allocatable is what the node offers to pods, AllowedPods how many it takes.
	Allocatable resources.Amounts
	AllowedPods int
	// Requested sums the pods' requests; Comparable the same with gaps filled, for comparing nodes.
	Requested  resources.Amounts
	Comparable resources.Amounts
	Ports      hostport.Held
	// Pods are the pods bound or assumed here, by UID.
	Pods map[types.UID]*Pod
	// Controlled counts the pods here by controller UID.
	Controlled map[types.UID]int

	index int // place in Cluster.present; -1 while there is no API object, only pods that name it
	// changed is when the node last changed, and recent its element among those that have; nil while there is no object.
	changed uint64
	recent  *list.Element
}

// Place is the node's place in Nodes. It is the same until a node is deleted.
func (n *Node) Place() int { return n.index }

func newNode(name string) *Node {
	return &Node{Name: name, Pods: map[types.UID]*Pod{}, Controlled: map[types.UID]int{}, index: -1}
}

func (n *Node) exists() bool { return n.index >= 0 }

// With returns a copy of the node to which pods were added and from which others were removed, for asking "would it fit
// if". Pods already there, or not there, are passed over. The original is not changed.
func (n *Node) With(added, removed []*Pod) *Node {
	c := *n
	c.Requested, c.Comparable = n.Requested.Clone(), n.Comparable.Clone()
	c.Pods, c.Controlled = maps.Clone(n.Pods), maps.Clone(n.Controlled)
	c.Ports = n.Ports.Clone()
	for _, pod := range removed {
		if present, ok := c.Pods[pod.UID]; ok {
			c.remove(present)
		}
	}
	for _, pod := range added {
		if _, ok := c.Pods[pod.UID]; !ok {
			c.add(pod)
		}
	}
	return &c
}

func (n *Node) add(pod *Pod) {
	n.Pods[pod.UID] = pod
	n.Requested.Add(pod.Requests)
	n.Comparable.Add(pod.Comparable)
	for _, port := range pod.HostPorts {
		n.Ports.Add(port)
	}
	if pod.Controller != "" {
		n.Controlled[pod.Controller]++
	}
}

func (n *Node) remove(pod *Pod) {
	delete(n.Pods, pod.UID)
	n.Requested.Sub(pod.Requests)
	n.Comparable.Sub(pod.Comparable)
	for _, port := range pod.HostPorts {
		n.Ports.Remove(port)
	}
	if pod.Controller != "" {
		n.Controlled[pod.Controller]--
		if n.Controlled[pod.Controller] == 0 {
			delete(n.Controlled, pod.Controller)
		}
	}
}

// set takes over a newer object and says what in it matters to scheduling.
func (n *Node) set(object *corev1.Node) Change {
	var change Change
	allocatable, pods := resources.FromList(object.Status.Allocatable), int(object.Status.Allocatable.Pods().Value())
	switch {
	case !n.exists():
		change = NodeAdded
	default:
		if !n.Allocatable.Equal(allocatable) || n.AllowedPods != pods {
			change |= AllocatableChanged
		}
		if !maps.Equal(n.Labels, object.Labels) {
			change |= LabelsChanged
		}
		if n.Unschedulable != object.Spec.Unschedulable || !equality.Semantic.DeepEqual(n.Taints, object.Spec.Taints) {
			change |= TaintsChanged
		}
	}
	n.UID = object.UID
	n.Labels, n.Taints, n.Unschedulable = object.Labels, object.Spec.Taints, object.Spec.Unschedulable
	// A node that names no number of pods takes none, as for every other resource.
	n.Allocatable, n.AllowedPods = allocatable, pods
	return change
}

// SameNode reports whether two objects of one node say the same to the rules.
func SameNode(a, b *corev1.Node) bool {
	return a.Spec.Unschedulable == b.Spec.Unschedulable && maps.Equal(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) &&
		sameAllocatable(a.Status.Allocatable, b.Status.Allocatable)
}

func sameAllocatable(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, quantity := range a {
		other, ok := b[name]
		if !ok || quantity.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

// unset leaves only the pods.
func (n *Node) unset() {
	n.index = -1
	n.UID, n.Labels, n.Taints, n.Unschedulable = "", nil, nil, false
	n.Allocatable, n.AllowedPods = resources.Amounts{}, 0
}

// Object is the node as an API object with its name and its labels, for those who ask about no more.
func (n *Node) Object() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
}
