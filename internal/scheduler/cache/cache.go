package cache

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Change says what of a node became different, as a set of bits.
type Change uint8

// The changes that may let a waiting pod fit.
const (
	NodeAdded Change = 1 << iota
	AllocatableChanged
	LabelsChanged
	// TaintsChanged covers taints and the unschedulable flag.
	TaintsChanged
	// PodRemoved: a pod left the node or stopped using it.
	PodRemoved
	// PodAdded: a pod came to the node, which helps those that want to be near it.
	PodAdded
)

// Cache is the state of all nodes. The zero value is not usable; call New.
type Cache struct {
	nodes   map[string]*Node
	present []*Node // those with an API object
	pods    map[types.UID]*entry
	// repelling are the pods that do not want certain others near them.
	repelling map[types.UID]*entry
	// namespaces holds the labels of each namespace.
	namespaces map[string]map[string]string
}

type entry struct {
	pod     *Pod
	node    *Node
	assumed bool
}

// New returns an empty cache.
func New() *Cache {
	return &Cache{
		nodes: map[string]*Node{}, pods: map[types.UID]*entry{}, repelling: map[types.UID]*entry{},
		namespaces: map[string]map[string]string{},
	}
}

// Node returns the node of that name if its API object exists, else nil.
func (c *Cache) Node(name string) *Node {
	if node := c.nodes[name]; node != nil && node.Object != nil {
		return node
	}
	return nil
}

// Nodes returns the existing nodes, in an order that depends only on the events so far. The caller must not change it.
func (c *Cache) Nodes() []*Node { return c.present }

// SetNode takes over a node's latest object and returns what changed; 0 for a heartbeat.
func (c *Cache) SetNode(object *corev1.Node) Change {
	node := c.node(object.Name)
	if node.index < 0 {
		node.index = len(c.present)
		c.present = append(c.present, node)
	}
	return node.set(object)
}

// DeleteNode forgets a node's object. Its pods are kept until they are deleted themselves.
func (c *Cache) DeleteNode(name string) {
	node := c.nodes[name]
	if node == nil || node.index < 0 {
		return
	}
	last := c.present[len(c.present)-1]
	c.present[node.index], last.index = last, node.index
	c.present = c.present[:len(c.present)-1]
	node.index, node.Object = -1, nil
	node.Allocatable, node.AllowedPods = Resources{}, 0
	c.drop(node)
}

// SetPod takes over the latest object of a pod that names a node and still uses it. An assumed pod is confirmed by it.
// The result is the name of another node that the pod has left, "" if none.
func (c *Cache) SetPod(object *corev1.Pod) (left string) {
	known := c.pods[object.UID]
	if known == nil {
		c.place(NewPod(object), object.Spec.NodeName, false)
		return ""
	}
	pod := known.pod.update(object)
	if known.node.Name != object.Spec.NodeName {
		left = known.node.Name
	}
	c.DeletePod(object.UID)
	c.place(pod, object.Spec.NodeName, false)
	return left
}

// DeletePod forgets a pod, assumed or not, and returns the name of the node it was on, "" if it was on none.
func (c *Cache) DeletePod(uid types.UID) (nodeName string) {
	known := c.pods[uid]
	if known == nil {
		return ""
	}
	delete(c.pods, uid)
	delete(c.repelling, uid)
	known.node.remove(known.pod)
	c.drop(known.node)
	return known.node.Name
}

// Assume counts pod on the node before its binding is seen. A pod that is counted already is a broken invariant.
func (c *Cache) Assume(pod *Pod, nodeName string) {
	if known := c.pods[pod.UID]; known != nil {
		panic(fmt.Sprintf("pod %s is on node %s already", pod, known.node.Name))
	}
	c.place(pod, nodeName, true)
}

// Forget takes back an assumption and returns the node's name. A pod that is not assumed (any more) is left alone and
// gives "".
func (c *Cache) Forget(uid types.UID) (nodeName string) {
	if known := c.pods[uid]; known == nil || !known.assumed {
		return ""
	}
	return c.DeletePod(uid)
}

// Holds reports whether the pod is counted on some node.
func (c *Cache) Holds(uid types.UID) bool { return c.pods[uid] != nil }

// Repelling goes through the pods that have required anti-affinity and are on a node that exists.
func (c *Cache) Repelling() iter.Seq2[*Pod, *Node] {
	return func(yield func(*Pod, *Node) bool) {
		for _, known := range c.repelling {
			if known.node.Object != nil && !yield(known.pod, known.node) {
				return
			}
		}
	}
}

// SetNamespace takes over a namespace's labels; DeleteNamespace forgets them.
func (c *Cache) SetNamespace(name string, labels map[string]string) { c.namespaces[name] = labels }

// DeleteNamespace forgets a namespace.
func (c *Cache) DeleteNamespace(name string) { delete(c.namespaces, name) }

// NamespaceLabels returns the labels of a namespace.
func (c *Cache) NamespaceLabels(name string) map[string]string { return c.namespaces[name] }

// Dump renders the whole state, sorted, for tests and inspection.
func (c *Cache) Dump() string {
	var lines []string
	for name, node := range c.nodes {
		state := "present"
		if node.Object == nil {
			state = "unknown"
		}
		lines = append(lines, fmt.Sprintf("node %s %s pods=%d/%d cpu=%dm/%dm memory=%d/%d ports=%d", name, state, len(node.Pods),
			node.AllowedPods, node.Requested.MilliCPU, node.Allocatable.MilliCPU, node.Requested.Memory, node.Allocatable.Memory,
			len(node.Ports.holders)))
	}
	for _, known := range c.pods {
		line := fmt.Sprintf("pod %s on %s", known.pod, known.node.Name)
		if known.assumed {
			line += " assumed"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (c *Cache) place(pod *Pod, nodeName string, assumed bool) {
	node := c.node(nodeName)
	node.add(pod)
	placed := &entry{pod: pod, node: node, assumed: assumed}
	c.pods[pod.UID] = placed
	if len(pod.Repels()) > 0 {
		c.repelling[pod.UID] = placed
	}
}

func (c *Cache) node(name string) *Node {
	node := c.nodes[name]
	if node == nil {
		node = newNode(name)
		c.nodes[name] = node
	}
	return node
}

// drop removes a node that has neither an object nor pods.
func (c *Cache) drop(node *Node) {
	if node.Object == nil && len(node.Pods) == 0 {
		delete(c.nodes, node.Name)
	}
}
