package fit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/fit/volumes"
)

// Cluster is the state of all nodes. The zero value is not usable; call NewCluster.
type Cluster struct {
	nodes    map[string]*Node
	present  []*Node // those with an API object
	pods     map[types.UID]placed
	families map[types.UID]*family
	// namespaces holds the labels of each namespace.
	namespaces map[string]map[string]string
	// storage is nil for a cluster that does not look at claims.
	storage *volumes.Storage
	// devices is nil for a cluster that does not look at claims to devices.
	devices Devices
	index
	recency
}

type placed struct {
	pod     *Pod
	node    *Node
	assumed bool
}

// family is what the pods of one controller share: those of a revision have the same labels.
type family struct {
	labels map[string]string // of the one that came last
	pods   int
}

// NewCluster returns a cluster without nodes and pods.
func NewCluster() *Cluster {
	return &Cluster{
		nodes: map[string]*Node{}, pods: map[types.UID]placed{}, families: map[types.UID]*family{},
		namespaces: map[string]map[string]string{}, index: newIndex(),
	}
}

// Node returns the node of that name if its API object exists, else nil.
func (c *Cluster) Node(name string) *Node {
	if node := c.nodes[name]; node != nil && node.exists() {
		return node
	}
	return nil
}

// Nodes returns the existing nodes, in an order that depends only on the events so far. The caller must not change it.
func (c *Cluster) Nodes() []*Node { return c.present }

// SetNode takes over a node's latest object and returns what changed; 0 for a heartbeat.
func (c *Cluster) SetNode(object *corev1.Node) Change {
	node := c.node(object.Name)
	moved := !node.exists() || !maps.Equal(node.Labels, object.Labels)
	if moved {
		c.countAll(node, -1)
	}
	change := node.set(object)
	if change&NodeAdded != 0 {
		node.index = len(c.present)
		c.present = append(c.present, node)
	}
	if moved {
		c.countAll(node, 1)
	}
	if change != 0 {
		c.touch(node)
	}
	return change
}

// DeleteNode forgets a node's object. Its pods are kept until they are deleted themselves.
func (c *Cluster) DeleteNode(name string) {
	node := c.nodes[name]
	if node == nil || !node.exists() {
		return
	}
	c.countAll(node, -1)
	last := c.present[len(c.present)-1]
	c.present[node.index], last.index = last, node.index
	c.present = c.present[:len(c.present)-1]
	c.leave(node)
	node.unset()
	c.drop(node)
}

// SetPod takes over the latest object of a pod that names a node and still uses it. An assumed pod is confirmed by it.
// The result is the name of another node that the pod has left, "" if none.
func (c *Cluster) SetPod(object *corev1.Pod) (left string) {
	known, isKnown := c.pods[object.UID]
	if isKnown && known.node.Name != object.Spec.NodeName {
		left = known.node.Name
	}
	c.DeletePod(object.UID)
	c.place(NewPod(object), object.Spec.NodeName, false)
	return left
}

// DeletePod forgets a pod, assumed or not, and returns the name of the node it was on, "" if it was on none.
func (c *Cluster) DeletePod(uid types.UID) (nodeName string) {
	known, ok := c.pods[uid]
	if !ok {
		return ""
	}
	delete(c.pods, uid)
	c.count(known.pod, known.node, -1)
	c.dropTerms(known.pod)
	c.leaveFamily(known.pod)
	c.storage.Count(known.pod.ClaimKeys(), -1)
	known.node.remove(known.pod)
	c.touch(known.node)
	c.drop(known.node)
	return known.node.Name
}

// Assume counts pod on the node before its binding is seen. A pod that is counted already is a broken invariant.
func (c *Cluster) Assume(pod *Pod, nodeName string) {
	if known, ok := c.pods[pod.UID]; ok {
		panic(fmt.Sprintf("pod %s is on node %s already", pod, known.node.Name))
	}
	c.place(pod, nodeName, true)
}

// Forget takes back an assumption and returns the node's name. A pod that is not assumed (any more) is left alone and
// gives "".
func (c *Cluster) Forget(uid types.UID) (nodeName string) {
	if !c.pods[uid].assumed {
		return ""
	}
	return c.DeletePod(uid)
}

// Holds reports whether the pod is counted on some node.
func (c *Cluster) Holds(uid types.UID) bool {
	_, ok := c.pods[uid]
	return ok
}

// Dump renders the whole state, sorted, for tests and inspection.
func (c *Cluster) Dump() string {
	var lines []string
	for name, node := range c.nodes {
		state := "present"
		if !node.exists() {
			state = "unknown"
		}
		lines = append(lines, fmt.Sprintf("node %s %s pods=%d/%d cpu=%dm/%dm memory=%d/%d ports=%d", name, state,
			len(node.Pods),
			node.AllowedPods, node.Requested.MilliCPU, node.Allocatable.MilliCPU, node.Requested.Memory,
			node.Allocatable.Memory,
			node.Ports.Len()))
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

func (c *Cluster) place(pod *Pod, nodeName string, assumed bool) {
	held := *pod
	held.Object = nil
	c.shareTerms(&held)
	c.joinFamily(&held)
	c.storage.Count(held.ClaimKeys(), 1)
	node := c.node(nodeName)
	node.add(&held)
	c.touch(node)
	c.pods[held.UID] = placed{pod: &held, node: node, assumed: assumed}
	c.count(&held, node, 1)
}

// joinFamily has a pod share its labels with the other pods of its controller, if they have the same.
func (c *Cluster) joinFamily(pod *Pod) {
	if pod.Controller == "" {
		return
	}
	f := c.families[pod.Controller]
	if f == nil {
		f = &family{}
		c.families[pod.Controller] = f
	}
	f.pods++
	if maps.Equal(f.labels, pod.Labels) {
		pod.Labels = f.labels
	} else {
		f.labels = pod.Labels
	}
}

func (c *Cluster) leaveFamily(pod *Pod) {
	if f := c.families[pod.Controller]; f != nil {
		f.pods--
		if f.pods == 0 {
			delete(c.families, pod.Controller)
		}
	}
}

func (c *Cluster) node(name string) *Node {
	node := c.nodes[name]
	if node == nil {
		node = newNode(name)
		c.nodes[name] = node
	}
	return node
}

// drop removes a node that has neither an object nor pods.
func (c *Cluster) drop(node *Node) {
	if !node.exists() && len(node.Pods) == 0 {
		delete(c.nodes, node.Name)
	}
}

// Devices answers questions about the claims of pods to devices.
type Devices interface {
	// Ask returns nil for a pod without claims.
	Ask(pod *corev1.Pod) DeviceQuestion
}

// DeviceQuestion is about the claims of one pod.
type DeviceQuestion interface {
	// Problem says why the pod fits on no node whatever; "" if that is not so.
	Problem() string
	// Missing says why a node cannot have the pod; "" if it can. Of the node only its name and its labels are looked
	// at.
	Missing(node *corev1.Node) string
}

// FollowDevices has nodes asked for the devices of pods' claims. A cluster for which it is not called takes no notice
// of such claims.
func (c *Cluster) FollowDevices(d Devices) { c.devices = d }
