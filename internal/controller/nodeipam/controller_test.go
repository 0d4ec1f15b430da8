package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/node"
)

// cluster is the nodes as cache and API server hold them.
type cluster struct {
	nodes  map[string]*corev1.Node
	fail   error // of the next write
	events []string
}

// Get implements client.Reader.
func (c *cluster) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	node := c.nodes[key.Name]
	if node == nil {
		return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
	}
	*object.(*corev1.Node) = *node
	return nil
}

// List implements client.Reader.
func (c *cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, node := range c.nodes {
		list.(*corev1.NodeList).Items = append(list.(*corev1.NodeList).Items, *node)
	}
	return nil
}

// SetPodCIDR implements api.
func (c *cluster) SetPodCIDR(_ context.Context, n *corev1.Node, block netip.Prefix, of node.PodNetworks) error {
	if err := c.fail; err != nil {
		c.fail = nil
		return err
	}
	changed := n.DeepCopy()
	changed.Annotations = of.Annotations()
	if block.IsValid() {
		changed.Spec.PodCIDR, changed.Spec.PodCIDRs = block.String(), []string{block.String()}
	}
	c.nodes[n.Name] = changed
	return nil
}

// Eventf implements Recorder.
func (c *cluster) Eventf(_ runtime.Object, _, reason, format string, args ...any) {
	c.events = append(c.events, reason+": "+fmt.Sprintf(format, args...))
}

func (c *cluster) add(name, uid, cidr string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	if cidr != "" {
		node.Spec.PodCIDR, node.Spec.PodCIDRs = cidr, []string{cidr}
	}
	c.nodes[name] = node
}

// errNothingLeft says that the node is to be looked at again later.
var errNothingLeft = errors.New("no block was given")

func newCluster(t *testing.T, network string) (*cluster, func(name string) error) {
	t.Helper()
	c := &cluster{nodes: map[string]*corev1.Node{}}
	r, err := newReconciler(c, Config{ClusterCIDR: netip.MustParsePrefix(network), Writer: c, Events: c})
	if err != nil {
		t.Fatal(err)
	}
	return c, func(name string) error {
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		if err == nil && result.RequeueAfter > 0 {
			err = errNothingLeft
		}
		return err
	}
}

func (c *cluster) expect(t *testing.T, name, cidr string) {
	t.Helper()
	if got := c.nodes[name].Spec.PodCIDR; got != cidr {
		t.Errorf("node %s has %q, want %q", name, got, cidr)
	}
}

func TestTakenBlocksAreKnownBeforeTheFirstIsGiven(t *testing.T) {
	c, reconcileNode := newCluster(t, "10.0.0.0/22")
	c.add("new", "1", "")
	c.add("old", "2", "10.0.0.0/24")
	c.add("foreign", "3", "192.168.0.0/24")
	if err := reconcileNode("new"); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "new", "10.0.1.0/24")
	c.expect(t, "old", "10.0.0.0/24")
}

func TestFailedWriteIsRepeatedWithTheSameBlock(t *testing.T) {
	c, reconcileNode := newCluster(t, "10.0.0.0/22")
	c.add("n", "1", "")
	c.fail = errors.New("no connection")
	if err := reconcileNode("n"); err == nil {
		t.Fatal("a failed write was not reported")
	}
	if err := reconcileNode("n"); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "n", "10.0.0.0/24")
}

func TestFullNetworkAndFreedBlocks(t *testing.T) {
	c, reconcileNode := newCluster(t, "10.0.0.0/23")
	for i, name := range []string{"a", "b", "c"} {
		c.add(name, fmt.Sprint(i), "")
	}
	if err := errors.Join(reconcileNode("a"), reconcileNode("b")); err != nil {
		t.Fatal(err)
	}
	if err := reconcileNode("c"); !errors.Is(err, errNothingLeft) {
		t.Errorf("a third of two: %v", err)
	}
	if want := "CIDRNotAvailable: Node c gets no pod network: all 2 parts of 10.0.0.0/23 are given to nodes; " +
		"delete nodes that are gone, or start the server with a larger --cluster-cidr that holds this one"; !slices.Equal(c.events, []string{want}) {
		t.Errorf("events %q, want %q", c.events, want)
	}
	delete(c.nodes, "a")
	if err := errors.Join(reconcileNode("a"), reconcileNode("c")); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "c", "10.0.0.0/24")
}

// A network that was too small is replaced by one around it: nodes keep what they have,
// and are told of the new bounds.
func TestALargerNetworkAroundTheFirst(t *testing.T) {
	c, reconcileNode := newCluster(t, "10.0.0.0/23")
	c.add("a", "1", "")
	c.add("b", "2", "")
	if err := errors.Join(reconcileNode("a"), reconcileNode("b")); err != nil {
		t.Fatal(err)
	}
	larger, err := newReconciler(c, Config{ClusterCIDR: netip.MustParsePrefix("10.0.0.0/22"), Writer: c, Events: c})
	if err != nil {
		t.Fatal(err)
	}
	c.add("c", "3", "")
	for _, name := range []string{"c", "a", "b"} {
		if result, err := larger.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil || result.RequeueAfter != 0 {
			t.Fatalf("node %s: %v, %v", name, result, err)
		}
		if got := c.nodes[name].Annotations[node.ClusterCIDRAnnotation]; got != "10.0.0.0/22" {
			t.Errorf("node %s is told of %q", name, got)
		}
	}
	c.expect(t, "a", "10.0.0.0/24")
	c.expect(t, "b", "10.0.1.0/24")
	c.expect(t, "c", "10.0.2.0/24")
	if len(c.events) != 0 {
		t.Errorf("events %q", c.events)
	}
}

func TestNodeMadeAgainUnderItsName(t *testing.T) {
	c, reconcileNode := newCluster(t, "10.0.0.0/22")
	c.add("n", "1", "")
	if err := reconcileNode("n"); err != nil {
		t.Fatal(err)
	}
	c.add("n", "2", "") // its deletion was not seen
	if err := reconcileNode("n"); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "n", "10.0.1.0/24")
	for _, name := range []string{"x", "y", "z"} {
		c.add(name, name, "")
		if err := reconcileNode(name); err != nil {
			t.Fatalf("the old incarnation's block was never freed: %v", err)
		}
	}
}

func TestBlockHeldTwiceStaysTaken(t *testing.T) {
	c, reconcileNode := newCluster(t, "10.0.0.0/23")
	c.add("a", "1", "10.0.0.0/24")
	c.add("b", "2", "10.0.0.0/24") // by hand
	c.add("c", "3", "")
	if err := reconcileNode("c"); err != nil {
		t.Fatal(err)
	}
	delete(c.nodes, "a")
	if err := reconcileNode("a"); err != nil {
		t.Fatal(err)
	}
	c.add("d", "4", "")
	if err := reconcileNode("d"); !errors.Is(err, errNothingLeft) {
		t.Errorf("node d got %s, which b still has", c.nodes["d"].Spec.PodCIDR)
	}
}

func TestWhatANodeBringsAlongCountsOnlyIfItIsAPart(t *testing.T) {
	for _, tc := range []struct{ name, cidr, want string }{
		{"everything", "0.0.0.0/0", "is not a /24 of the cluster's network 10.0.0.0/22"},
		{"the whole cluster's network", "10.0.0.0/22", "is not a /24 of"},
		{"half a part", "10.0.1.0/25", "is not a /24 of"},
		{"an address of somebody", "192.168.0.10/32", "is not a /24 of"},
		{"a network elsewhere", "192.168.0.0/24", "is not a /24 of"},
		{"another node's", "10.0.0.0/24", "is another node's"},
		{"a free part", "10.0.1.0/24", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, reconcileNode := newCluster(t, "10.0.0.0/22")
			c.add("old", "1", "")
			if err := reconcileNode("old"); err != nil {
				t.Fatal(err)
			}
			c.add("bad", "2", tc.cidr)
			if err := reconcileNode("bad"); err != nil {
				t.Fatal(err)
			}
			c.expect(t, "old", "10.0.0.0/24")
			c.expect(t, "bad", tc.cidr)
			if tc.want == "" && len(c.events) > 0 || tc.want != "" && (len(c.events) != 1 || !strings.Contains(c.events[0], tc.want) || !strings.HasPrefix(c.events[0], "CIDRNotAccepted: ")) {
				t.Errorf("events %q, want one that says %q", c.events, tc.want)
			}
			// Nothing but one part is ever taken by it.
			for i := range 2 {
				name := fmt.Sprint("more", i)
				c.add(name, name, "")
				if err := reconcileNode(name); err != nil {
					t.Errorf("a node that claims %s leaves nothing for others: %v", tc.cidr, err)
				}
			}
		})
	}
}

func TestEveryNodeIsToldOfTheClustersNetwork(t *testing.T) {
	c, reconcileNode := newCluster(t, "10.0.0.0/22")
	c.add("new", "1", "")
	c.add("old", "2", "10.0.0.0/24")
	c.add("lied to", "3", "10.0.3.0/24")
	c.nodes["lied to"].Annotations = map[string]string{node.ClusterCIDRAnnotation: "0.0.0.0/0", node.NodeMaskSizeAnnotation: "0"}
	for name := range c.nodes {
		if err := reconcileNode(name); err != nil {
			t.Fatal(err)
		}
		if got, _ := node.PodNetworksOf(c.nodes[name]); got.Cluster.String() != "10.0.0.0/22" || got.NodeBits != 24 {
			t.Errorf("node %s was told %v", name, got)
		}
	}
	c.expect(t, "old", "10.0.0.0/24")
}

func TestTheOldestOfTwoHasABlockAfterARestart(t *testing.T) {
	for range 20 { // nodes come in any order
		c, reconcileNode := newCluster(t, "10.0.0.0/23")
		c.add("thief", "1", "10.0.0.0/24")
		c.add("z-owner", "2", "10.0.0.0/24")
		c.nodes["thief"].CreationTimestamp = metav1.NewTime(time.Unix(200, 0))
		c.nodes["z-owner"].CreationTimestamp = metav1.NewTime(time.Unix(100, 0))
		if err := errors.Join(reconcileNode("z-owner"), reconcileNode("thief")); err != nil {
			t.Fatal(err)
		}
		if want := "CIDRNotAccepted: the pod network 10.0.0.0/24 is another node's; delete node thief so that it is given one"; !slices.Equal(c.events, []string{want}) {
			t.Fatalf("events %q, want %q", c.events, want)
		}
	}
}
