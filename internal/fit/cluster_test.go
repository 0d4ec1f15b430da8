package fit

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/fit/hostport"
	"github.com/everynode/everynode/internal/fit/resources"
)

// model is the plain truth: the latest objects, and where each pod counts.
type model struct {
	nodes   map[string]*corev1.Node
	pods    map[types.UID]*corev1.Pod
	on      map[types.UID]string
	assumed map[types.UID]bool
}

// recount computes one node's sums from scratch.
func (m *model) recount(name string) *Node {
	node := newNode(name)
	if object := m.nodes[name]; object != nil {
		node.set(object)
	}
	for uid, pod := range m.pods {
		if m.on[uid] == name {
			node.add(NewPod(pod))
		}
	}
	return node
}

func (m *model) compare(t *rapid.T, c *Cluster) {
	names := map[string]bool{}
	for name := range m.nodes {
		names[name] = true
	}
	for _, name := range m.on {
		names[name] = true
	}
	if got, want := slices.Sorted(maps.Keys(c.nodes)), slices.Sorted(maps.Keys(names)); !slices.Equal(got, want) {
		t.Fatalf("cache knows nodes %v, want %v", got, want)
	}
	if len(c.Nodes()) != len(m.nodes) {
		t.Fatalf("cache lists %d nodes, want %d", len(c.Nodes()), len(m.nodes))
	}
	for _, node := range c.Nodes() {
		if m.nodes[node.Name] == nil || c.Node(node.Name) != node ||
			!maps.Equal(node.Labels, m.nodes[node.Name].Labels) {
			t.Fatalf("cache lists node %s, which is not the present one of that name", node.Name)
		}
	}
	for name := range names {
		got, want := c.nodes[name], m.recount(name)
		if !reflect.DeepEqual(got.Requested, want.Requested) || !reflect.DeepEqual(got.Comparable, want.Comparable) ||
			!reflect.DeepEqual(got.Allocatable, want.Allocatable) || got.AllowedPods != want.AllowedPods {
			t.Fatalf("node %s has sums\n%+v\nwant\n%+v", name, got, want)
		}
		if !maps.Equal(got.Controlled, want.Controlled) || !equalPorts(&got.Ports, &want.Ports) {
			t.Fatalf("node %s counts %v %v, want %v %v", name, got.Controlled, got.Ports, want.Controlled, want.Ports)
		}
		if !slices.Equal(slices.Sorted(maps.Keys(got.Pods)), slices.Sorted(maps.Keys(want.Pods))) {
			t.Fatalf("node %s has pods %v, want %v", name, got.Pods, want.Pods)
		}
	}
}

func equalPorts(a, b *hostport.Held) bool {
	return a.Len() == b.Len() && (a.Len() == 0 || reflect.DeepEqual(a, b))
}

var nodeNames = rapid.SampledFrom([]string{"n1", "n2", "n3"})

func TestClusterEqualsRecount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewCluster()
		m := &model{nodes: map[string]*corev1.Node{}, pods: map[types.UID]*corev1.Pod{}, on: map[types.UID]string{},
			assumed: map[types.UID]bool{}}
		next := 0
		somePod := func(t *rapid.T, keep func(types.UID) bool) (types.UID, bool) {
			var uids []types.UID
			for uid := range m.pods {
				if keep(uid) {
					uids = append(uids, uid)
				}
			}
			if len(uids) == 0 {
				return "", false
			}
			slices.Sort(uids)
			return rapid.SampledFrom(uids).Draw(t, "pod"), true
		}
		t.Repeat(map[string]func(*rapid.T){
			"set node": func(t *rapid.T) {
				name := nodeNames.Draw(t, "node")
				m.nodes[name] = drawNode(t, name)
				c.SetNode(m.nodes[name])
			},
			"delete node": func(t *rapid.T) {
				name := nodeNames.Draw(t, "node")
				delete(m.nodes, name)
				c.DeleteNode(name)
			},
			"new pod": func(t *rapid.T) {
				next++
				pod := drawPod(t, types.UID(fmt.Sprintf("p%d", next)))
				pod.Spec.NodeName = nodeNames.Draw(t, "node")
				m.pods[pod.UID], m.on[pod.UID] = pod, pod.Spec.NodeName
				c.SetPod(pod)
			},
			"assume": func(t *rapid.T) {
				next++
				pod, name := drawPod(t, types.UID(fmt.Sprintf("p%d", next))), nodeNames.Draw(t, "node")
				m.pods[pod.UID], m.on[pod.UID], m.assumed[pod.UID] = pod, name, true
				c.Assume(NewPod(pod), name)
			},
			"change or confirm": func(t *rapid.T) {
				uid, ok := somePod(t, func(types.UID) bool { return true })
				if !ok {
					return
				}
				pod := drawPod(t, uid)
				pod.Generation = m.pods[uid].Generation + rapid.Int64Range(1, 2).Draw(t, "generation")
				pod.Spec.NodeName = nodeNames.Draw(t, "node")
				left := c.SetPod(pod)
				if want := m.on[uid]; want != pod.Spec.NodeName && left != want || want == pod.Spec.NodeName &&
					left != "" {
					t.Fatalf("pod %s went from %q to %q, SetPod says it left %q", uid, want, pod.Spec.NodeName, left)
				}
				m.pods[uid], m.on[uid] = pod, pod.Spec.NodeName
				delete(m.assumed, uid)
			},
			"forget": func(t *rapid.T) {
				uid, ok := somePod(t, func(types.UID) bool { return true })
				if !ok {
					return
				}
				want := ""
				if m.assumed[uid] {
					want = m.on[uid]
					delete(m.pods, uid)
					delete(m.on, uid)
					delete(m.assumed, uid)
				}
				if got := c.Forget(uid); got != want {
					t.Fatalf("Forget(%s) = %q, want %q", uid, got, want)
				}
			},
			"delete pod": func(t *rapid.T) {
				uid, ok := somePod(t, func(types.UID) bool { return true })
				if !ok {
					return
				}
				if got := c.DeletePod(uid); got != m.on[uid] {
					t.Fatalf("DeletePod(%s) = %q, want %q", uid, got, m.on[uid])
				}
				delete(m.pods, uid)
				delete(m.on, uid)
				delete(m.assumed, uid)
			},
			"": func(t *rapid.T) { m.compare(t, c) },
		})
	})
}

func TestWithIsARecountAndLeavesTheNodeAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := newNode("n")
		node.set(drawNode(t, "n"))
		var before, added []*Pod
		for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
			before = append(before, NewPod(drawPod(t, types.UID(fmt.Sprintf("b%d", i)))))
			node.add(before[i])
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "added") {
			added = append(added, NewPod(drawPod(t, types.UID(fmt.Sprintf("a%d", i)))))
		}
		removed := before[:rapid.IntRange(0, len(before)).Draw(t, "removed")]
		got := node.With(added, removed)

		want, same := newNode("n"), newNode("n")
		for _, pod := range append(slices.Clone(before[len(removed):]), added...) {
			want.add(pod)
		}
		for _, pod := range before {
			same.add(pod)
		}
		for _, pair := range []struct{ got, want *Node }{{got, want}, {node, same}} {
			if !reflect.DeepEqual(pair.got.Requested, pair.want.Requested) ||
				!equalPorts(&pair.got.Ports, &pair.want.Ports) ||
				!maps.Equal(pair.got.Controlled, pair.want.Controlled) || len(pair.got.Pods) != len(pair.want.Pods) {
				t.Fatalf("got\n%+v\nwant\n%+v", pair.got, pair.want)
			}
		}
	})
}

// TestRequestsEqualUpstream compares with the function that Kubernetes' own components use.
func TestRequestsEqualUpstream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := drawPod(t, "p")
		if got, want := NewPod(pod).Requests, resources.FromList(resourcehelper.PodRequests(pod,
			resourcehelper.PodResourcesOptions{})); !reflect.DeepEqual(got, want) {
			t.Fatalf("requests are %+v, want %+v", got, want)
		}
		options := resourcehelper.PodResourcesOptions{NonMissingContainerRequests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("200Mi"),
		}}
		if got, want := NewPod(pod).Comparable, resources.FromList(resourcehelper.PodRequests(pod,
			options)); !reflect.DeepEqual(got, want) {
			t.Fatalf("comparable requests are %+v, want %+v", got, want)
		}
	})
}

func TestSetNodeSaysWhatChanged(t *testing.T) {
	base := func() *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}
	}
	tests := []struct {
		name string
		edit func(*corev1.Node)
		want Change
	}{
		{"heartbeat", func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}} },
			0},
		{"same amount, other notation", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("1000m") }, 0},
		{"allocatable", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("2") },
			AllocatableChanged},
		{"new resource", func(n *corev1.Node) { n.Status.Allocatable["example.com/gpu"] = resource.MustParse("2") },
			AllocatableChanged},
		{"labels", func(n *corev1.Node) { n.Labels["c"] = "d" }, LabelsChanged},
		{"taints", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k"}} }, TaintsChanged},
		{"cordon", func(n *corev1.Node) { n.Spec.Unschedulable = true }, TaintsChanged},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := NewCluster()
			if got := c.SetNode(base()); got != NodeAdded {
				t.Errorf("first SetNode says %b, want NodeAdded", got)
			}
			changed := base()
			test.edit(changed)
			if got := c.SetNode(changed); got != test.want {
				t.Errorf("change is %b, want %b", got, test.want)
			}
		})
	}
}

func drawNode(t *rapid.T, name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Allocatable: drawResources(t)},
	}
}

func drawPod(t *rapid.T, uid types.UID) *corev1.Pod {
	always, yes := corev1.ContainerRestartPolicyAlways, true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid, Generation: 1}}
	if rapid.Bool().Draw(t, "owned") {
		pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(rapid.SampledFrom([]string{"x", "y"}).Draw(t,
			"owner")), Controller: &yes}}
	}
	for range rapid.IntRange(1, 3).Draw(t, "containers") {
		pod.Spec.Containers = append(pod.Spec.Containers, drawContainer(t))
	}
	for range rapid.IntRange(0, 3).Draw(t, "init containers") {
		container := drawContainer(t)
		if rapid.Bool().Draw(t, "sidecar") {
			container.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
	}
	if rapid.IntRange(0, 3).Draw(t, "overhead") == 0 {
		pod.Spec.Overhead = drawResources(t)
	}
	if rapid.IntRange(0, 3).Draw(t, "pod level") == 0 {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: drawResources(t)}
	}
	return pod
}

func drawContainer(t *rapid.T) corev1.Container {
	container := corev1.Container{Resources: corev1.ResourceRequirements{Requests: drawResources(t)}}
	for range rapid.IntRange(0, 2).Draw(t, "ports") {
		container.Ports = append(container.Ports, corev1.ContainerPort{
			HostPort: rapid.Int32Range(0, 3).Draw(t, "port"),
			HostIP:   rapid.SampledFrom([]string{"", "10.0.0.1"}).Draw(t, "ip"),
		})
	}
	return container
}

func drawResources(t *rapid.T) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods,
		"hugepages-2Mi", "example.com/gpu",
	} {
		if rapid.Bool().Draw(t, string(name)) {
			list[name] = *resource.NewMilliQuantity(rapid.Int64Range(0, 5).Draw(t, "amount")*1000, resource.DecimalSI)
		}
	}
	return list
}
