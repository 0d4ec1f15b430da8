package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"

	"github.com/everynode/everynode/internal/node/peer"
)

// lockedKernel is a fakeKernel that may be looked at while it is changed.
type lockedKernel struct {
	mu sync.Mutex
	fakeKernel
}

func (k *lockedKernel) paths() (map[netip.Prefix]path, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fakeKernel.paths()
}

func (k *lockedKernel) addPath(p path) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fakeKernel.addPath(p)
}

func (k *lockedKernel) removePath(to netip.Prefix) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fakeKernel.removePath(to)
}

func (k *lockedKernel) setTunnel(want tunnel) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fakeKernel.setTunnel(want)
}

func (k *lockedKernel) applyRules(ctx context.Context, commands string) error {
	go func() { <-k.applied }() // nobody waits for them
	return k.fakeKernel.applyRules(ctx, commands)
}

// await waits until the paths are those of a list such as "10.244.1.0/24 10.0.0.2".
func (k *lockedKernel) await(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		have, _ := k.paths()
		got = nil
		for to, p := range have {
			got = append(got, fmt.Sprintf("%s %s", to, p.via))
		}
		slices.Sort(got)
		if slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("the paths are %q, want %q", got, want)
}

// server answers as soon as it is up.
type server struct {
	up     atomic.Bool
	client *fake.Clientset
}

func newAPIServer(nodes ...runtime.Object) *server {
	s := &server{client: fake.NewClientset(nodes...)}
	away := errors.New("connection refused")
	s.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return !s.up.Load(), nil, away })
	s.client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) { return !s.up.Load(), nil, away })
	return s
}

// A machine that was switched on without a control plane reaches other nodes' pods as it did; what changed meanwhile is done when the
// control plane is back.
func TestAlone(t *testing.T) {
	known := &Known{Pods: testNetworks}
	for _, n := range []*corev1.Node{aNode("me", "10.244.0.0/24", "10.0.0.1"), aNode("stays", "10.244.1.0/24", "10.0.0.2"), aNode("moves", "10.244.2.0/24", "10.0.0.3"),
		aNode("goes", "10.244.3.0/24", "10.0.0.4"), aNode("lies", "10.0.0.0/8", "10.0.0.5")} {
		known.Nodes = append(known.Nodes, peer.Of(n))
	}
	s := newAPIServer(aNode("me", "10.244.0.0/24", "10.0.0.1"), aNode("stays", "10.244.1.0/24", "10.0.0.2"), aNode("moves", "10.244.2.0/24", "10.0.0.9"), aNode("comes", "10.244.4.0/24", "10.0.0.6"))
	k := &lockedKernel{fakeKernel: *newFakeKernel()}
	var learned atomic.Int32
	n := start(t, s, k, Config{Known: known, Learned: func() { learned.Add(1) }})
	k.await(t, "10.244.1.0/24 10.0.0.2", "10.244.2.0/24 10.0.0.3", "10.244.3.0/24 10.0.0.4")
	if n.State().Problem != nil || learned.Load() != 0 {
		t.Errorf("the state is %v, and it learned %d times", n.State().Problem, learned.Load())
	}
	s.up.Store(true)
	k.await(t, "10.244.1.0/24 10.0.0.2", "10.244.2.0/24 10.0.0.9", "10.244.4.0/24 10.0.0.6")
	for deadline := time.Now().Add(time.Minute); learned.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody is told that there is something to be remembered")
		}
	}
	now := map[string]string{}
	for _, o := range n.Known().Nodes {
		now[o.Name] = strings.Join(append(o.PodCIDRs, o.Addresses...), " ")
	}
	if want := map[string]string{"me": "10.244.0.0/24 10.0.0.1", "stays": "10.244.1.0/24 10.0.0.2", "moves": "10.244.2.0/24 10.0.0.9", "comes": "10.244.4.0/24 10.0.0.6"}; !maps.Equal(now, want) || n.Known().Pods != testNetworks {
		t.Errorf("it is to be remembered %v of %v, want %v", now, n.Known().Pods, want)
	}
}

// start runs a network; nobody waits long for the server.
func start(t *testing.T, s *server, k kernel, config Config) *Network {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	own := coreinformers.NewNodeInformer(s.client, 0, cache.Indexers{})
	config.NodeName, config.Mode, config.ConfDir, config.AllNodes, config.Own = "me", Auto, filepath.Join(t.TempDir(), "net.d"), allNodes(s.client), own
	n := newNetwork(config, k)
	n.patience = 10 * time.Millisecond
	var all sync.WaitGroup
	all.Go(func() { own.RunWithContext(ctx) })
	all.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); all.Wait() })
	return n
}

// Where only the agent was started again, paths stay as they are until the server says better.
func TestPathsThatAreThereStay(t *testing.T) {
	newer := path{to: netip.MustParsePrefix("10.244.7.0/24"), via: netip.MustParseAddr("10.0.0.7")}
	k := &lockedKernel{fakeKernel: *newFakeKernel()}
	k.have[newer.to] = newer
	k.made = counts{rules: map[string]int{"postrouting": 1, "input": 1}, nodes: 2}
	s := newAPIServer(aNode("me", "10.244.0.0/24", "10.0.0.1"), aNode("newer", "10.244.7.0/24", "10.0.0.7"))
	n := start(t, s, k, Config{Known: &Known{Pods: testNetworks, Nodes: []*peer.Node{peer.Of(aNode("me", "10.244.0.0/24", "10.0.0.1")), peer.Of(aNode("old", "10.244.1.0/24", "10.0.0.2"))}}})
	if n.recall(t.Context()) {
		t.Error("what is remembered counts more than what is there")
	}
	k.await(t, "10.244.7.0/24 10.0.0.7")
	s.up.Store(true)
	for deadline := time.Now().Add(time.Minute); !n.State().Known; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the network is not set up")
		}
	}
	k.await(t, "10.244.7.0/24 10.0.0.7")
}

// What somebody takes from such a machine comes back, as it is remembered.
func TestWhatIsTakenFromAMachineAloneComesBack(t *testing.T) {
	first := path{to: netip.MustParsePrefix("10.244.1.0/24"), via: netip.MustParseAddr("10.0.0.2")}
	second := path{to: netip.MustParsePrefix("10.244.2.0/24"), via: netip.MustParseAddr("10.0.0.3")}
	known := &Known{Pods: testNetworks}
	for _, o := range []*corev1.Node{aNode("me", "10.244.0.0/24", "10.0.0.1"), aNode("a", "10.244.1.0/24", "10.0.0.2"), aNode("b", "10.244.2.0/24", "10.0.0.3")} {
		known.Nodes = append(known.Nodes, peer.Of(o))
	}
	for what, take := range map[string]func(k *fakeKernel){
		"a route":   func(k *fakeKernel) { delete(k.have, first.to) },
		"all rules": func(k *fakeKernel) { k.made = counts{} },
		"a rule":    func(k *fakeKernel) { k.made.rules = map[string]int{"postrouting": 0, "input": 1} },
	} {
		k := newFakeKernel()
		k.have[first.to], k.have[second.to] = first, second
		k.made = counts{rules: map[string]int{"postrouting": 1, "input": 1}, nodes: 3}
		n := newNetwork(Config{NodeName: "me", Mode: Auto, Known: known, ConfDir: filepath.Join(t.TempDir(), "net.d")}, k)
		for range 2 {
			if n.recall(t.Context()) {
				t.Errorf("%s: before anything is taken away, what is remembered counts more than what is there", what)
			}
		}
		take(k)
		if !n.recall(t.Context()) {
			t.Errorf("%s was taken away, and nobody noticed", what)
		}
		if err := n.sync(t.Context(), true); err != nil {
			t.Error(err)
		}
		if len(k.have) != 2 || k.made.rules["postrouting"] != 1 || k.made.nodes != 3 {
			t.Errorf("%s was taken away: afterwards there are %v and %+v", what, k.have, k.made)
		}
	}
}

// What was said of a node before it was recalled is newer than what is remembered.
func TestWhatIsSaidIsNewer(t *testing.T) {
	n := newNetwork(Config{NodeName: "me", Mode: Auto, Known: &Known{Pods: testNetworks, Nodes: []*peer.Node{peer.Of(aNode("a", "10.244.1.0/24", "10.0.0.2")), peer.Of(aNode("b", "10.244.2.0/24", "10.0.0.3"))}}}, newFakeKernel())
	say(n, aNode("a", "10.244.1.0/24", "10.0.0.9"), false)
	if !n.recall(t.Context()) || n.pending["a"].ip.String() != "10.0.0.9" || n.pending["b"].ip.String() != "10.0.0.3" {
		t.Errorf("it goes on with %+v", n.pending)
	}
}

// What is remembered of nodes is what makes the same paths.
func TestKnownIsTheSameAgain(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	older := aNode("a", "10.244.1.0/24", "10.0.0.2")
	older.CreationTimestamp = metav1.Unix(1000, 0)
	rival := aNode("B", "10.244.1.0/24", "10.0.0.3")
	rival.CreationTimestamp = metav1.Unix(2000, 0)
	make1 := func(say1 func(*Network)) map[netip.Prefix]path {
		k := newFakeKernel()
		n := newNetwork(Config{NodeName: "me", Mode: Auto, ConfDir: filepath.Join(t.TempDir(), "net.d")}, k)
		say1(n)
		if err := n.sync(ctx, true); err != nil {
			t.Fatal(err)
		}
		return k.have
	}
	var known Known
	want := make1(func(n *Network) {
		for _, o := range []*corev1.Node{aNode("me", "10.244.0.0/24", "10.0.0.1"), older, rival, aNode("far", "10.244.2.0/24", "10.1.0.2"), aNode("bare", "", "10.0.0.8")} {
			say(n, o, false)
		}
		if _, _, err := n.learn(n.pending, bounds{PodNetworks: n.told}, true); err != nil {
			t.Fatal(err)
		}
		known = n.Known()
	})
	got := make1(func(n *Network) {
		n.config.Known = &known
		if !n.recall(ctx) {
			t.Error("it is not recalled")
		}
	})
	if len(known.Nodes) != 5 || len(want) != 2 || !maps.Equal(got, want) {
		t.Errorf("%d nodes make %v, want %v", len(known.Nodes), got, want)
	}
}
