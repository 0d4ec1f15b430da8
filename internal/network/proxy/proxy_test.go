package proxy

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/network/proxy/ruleset"
)

// told is what a packet filter was told: all rules, with the networks of pods, or a change.
type told struct {
	whole    bool
	pods     int
	elements []string
}

// journal is a packet filter that remembers, and fails when it is told to.
type journal struct {
	told   chan told
	fail   chan error
	intact bool
	empty  bool
	// forgotten is what was last to be forgotten, and keeps why that fails.
	forgotten []ruleset.Flow
	keeps     error
}

func (j *journal) note(t told) error {
	j.told <- t
	select {
	case err := <-j.fail:
		return err
	default:
		return nil
	}
}

func (j *journal) Change(_ context.Context, d ruleset.Delta) error {
	if d.Empty() {
		return nil
	}
	return j.note(told{elements: keys(d.Add)})
}

func (j *journal) Replace(_ context.Context, node ruleset.Node, whole ruleset.Table) error {
	return j.note(told{whole: true, pods: len(node.Pods), elements: keys(whole.Elements)})
}

func (j *journal) Intact(context.Context) (bool, error) { return j.intact, nil }
func (j *journal) Prepare() error                       { return nil }
func (j *journal) Empty(context.Context) (bool, error)  { return j.empty, nil }

func (j *journal) Forget(flows []ruleset.Flow) (uint, error) {
	j.forgotten = slices.Clone(flows)
	return 0, j.keeps
}

// keys lists the addresses of Services among elements.
func keys(elements map[ruleset.Key]string) (out []string) {
	for k := range elements {
		if k.In == "cluster-ips" {
			out = append(out, k.Key)
		}
	}
	slices.Sort(out)
	return out
}

// expect waits until the packet filter is told this, and nothing else before.
func (j *journal) expect(t *testing.T, when string, want told) {
	t.Helper()
	select {
	case got := <-j.told:
		if got.whole != want.whole || got.pods != want.pods || !slices.Equal(got.elements, want.elements) {
			t.Fatalf("%s: told %+v, want %+v", when, got, want)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s: told nothing", when)
	}
}

func service(name, ip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}}}
}

func TestRun(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	client := fake.NewClientset(service("a", "10.96.0.1"), node)
	factory := informers.NewSharedInformerFactory(client, 0)
	filter := &journal{told: make(chan told, 10), fail: make(chan error, 1)}
	p, err := newProxy(Config{
		NodeName: "node", Services: factory.Core().V1().Services().Informer(),
		EndpointSlices: factory.Discovery().V1().EndpointSlices().Informer(), Nodes: factory.Core().V1().Nodes().Informer(),
	}, filter, ruleset.Node{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
	}()
	create := func(svc *corev1.Service) {
		t.Helper()
		if _, err := client.CoreV1().Services("default").Create(ctx, svc, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	filter.expect(t, "at the start", told{whole: true, elements: []string{"10.96.0.1"}})
	create(service("b", "10.96.0.2"))
	filter.expect(t, "a service more", told{elements: []string{"10.96.0.2"}})
	filter.fail <- errors.New("no")
	create(service("c", "10.96.0.3"))
	filter.expect(t, "a change that fails", told{elements: []string{"10.96.0.3"}})
	filter.expect(t, "after it", told{whole: true, elements: []string{"10.96.0.1", "10.96.0.2", "10.96.0.3"}})

	got := node.DeepCopy()
	got.Spec.PodCIDRs = []string{"10.244.0.0/24"}
	if _, err := client.CoreV1().Nodes().Update(ctx, got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	filter.expect(t, "the node got its pod network", told{whole: true, pods: 1, elements: []string{"10.96.0.1", "10.96.0.2", "10.96.0.3"}})
	if err := client.CoreV1().Services("default").Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	filter.expect(t, "a service less", told{})
}

// TestWithoutTheAPI: rules that are there stay as they are; where there are none, what
// was known before is written, and then what the API has.
func TestWithoutTheAPI(t *testing.T) {
	for name, empty := range map[string]bool{"rules are there": false, "the machine is new": true} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(service("a", "10.96.0.1"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
			factory := informers.NewSharedInformerFactory(client, 0)
			filter := &journal{told: make(chan told, 10), fail: make(chan error, 1), empty: empty}
			known := &Known{
				Node:     &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.0.0/24"}}},
				Services: []*corev1.Service{service("a", "10.96.0.1"), service("old", "10.96.0.9")},
			}
			p, err := newProxy(Config{
				NodeName: "node", Services: factory.Core().V1().Services().Informer(), Known: known,
				EndpointSlices: factory.Discovery().V1().EndpointSlices().Informer(), Nodes: factory.Core().V1().Nodes().Informer(),
			}, filter, ruleset.Node{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- p.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("the end: %v", err)
				}
			}()
			if empty {
				filter.expect(t, "before the API answers", told{whole: true, pods: 1, elements: []string{"10.96.0.1", "10.96.0.9"}})
			}
			factory.Start(ctx.Done())
			filter.expect(t, "once it answers", told{whole: true, elements: []string{"10.96.0.1"}})
		})
	}
}

// still is a proxy whose caches tell nothing, on a clock that stands.
func still(t *testing.T, filter *journal, known *Known) (*Proxy, *testclock.FakeClock) {
	t.Helper()
	clock := testclock.NewFakeClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	p, err := newProxy(Config{
		NodeName: "node", Services: factory.Core().V1().Services().Informer(), Known: known, Clock: clock,
		EndpointSlices: factory.Discovery().V1().EndpointSlices().Informer(), Nodes: factory.Core().V1().Nodes().Informer(),
	}, filter, ruleset.Node{})
	if err != nil {
		t.Fatal(err)
	}
	return p, clock
}

// TestRulesThatAreLost: while they cannot be written again the node is unwell.
func TestRulesThatAreLost(t *testing.T) {
	filter := &journal{told: make(chan told, 10), fail: make(chan error, 1)}
	p, clock := still(t, filter, nil)
	ctx := t.Context()
	if err := p.sync(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.check(ctx); err != nil {
		t.Fatal(err)
	}
	filter.fail <- errors.New("no")
	if err := p.sync(ctx); err == nil {
		t.Fatal("that rules cannot be written is no error")
	}
	clock.Step(late)
	if p.progress.state().keepsUp {
		t.Error("without rules the node is well")
	}
	if err := p.sync(ctx); err != nil {
		t.Fatal(err)
	}
	if !p.progress.state().keepsUp {
		t.Error("with all rules written again the node is unwell")
	}
}

// TestFlowsThatStay: they are tried again, and the node is well with its rules written.
func TestFlowsThatStay(t *testing.T) {
	filter := &journal{told: make(chan told, 10), fail: make(chan error, 1), intact: true, keeps: errors.New("no")}
	p, clock := still(t, filter, nil)
	svc := service("dns", "10.96.0.10")
	svc.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	p.tracker.Service(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}, svc)
	p.progress.news()
	for range 2 {
		filter.forgotten = nil
		if err := p.sync(t.Context()); !errors.Is(err, filter.keeps) {
			t.Fatalf("a sync ends with %v, want %v", err, filter.keeps)
		}
		if len(filter.forgotten) != 1 {
			t.Errorf("it forgets %v, want the flows of the service", filter.forgotten)
		}
		clock.Step(late)
		if !p.progress.state().keepsUp {
			t.Error("the node is unwell for flows that stay")
		}
	}
}

// TestRecallAgain: until the API answers, what the node knew is written as often as
// there are no rules, and also after it could not be.
func TestRecallAgain(t *testing.T) {
	filter := &journal{told: make(chan told, 10), fail: make(chan error, 1), empty: true}
	p, clock := still(t, filter, &Known{Services: []*corev1.Service{service("a", "10.96.0.1")}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	filter.fail <- errors.New("no")
	go func() { ended <- p.Run(ctx) }()
	for _, when := range []string{"at the start", "after it failed", "after somebody emptied the packet filter"} {
		filter.expect(t, when, told{whole: true, elements: []string{"10.96.0.1"}})
		clock.Step(checkEvery)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
}

// TestRecallWithoutOwnPods: the node's own pods are dead when it recalls them.
func TestRecallWithoutOwnPods(t *testing.T) {
	endpoint := func(node, address string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{NodeName: &node, Addresses: []string{address}}
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "a-1", Labels: map[string]string{discoveryv1.LabelServiceName: "a"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](8080)}},
		Endpoints: []discoveryv1.Endpoint{
			endpoint("node", "10.244.0.7"), endpoint("node", "10.0.0.1"), endpoint("other", "10.244.1.7"),
			{Addresses: []string{"10.9.0.1"}},
		},
	}
	p, _ := still(t, &journal{}, &Known{
		Node:     &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.0.0/24"}}},
		Services: []*corev1.Service{service("a", "10.96.0.1")}, EndpointSlices: []*discoveryv1.EndpointSlice{slice},
	})
	want := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8080"), netip.MustParseAddrPort("10.9.0.1:8080"), netip.MustParseAddrPort("10.244.1.7:8080")}
	if got := p.recalled.services[0].Ports[0].Cluster; !slices.Equal(got, want) {
		t.Errorf("the service led to %v, want %v", got, want)
	}
	if len(slice.Endpoints) != 4 || slice.Endpoints[0].Addresses[0] != "10.244.0.7" {
		t.Error("what was known is changed")
	}
}

// TestFlowsOfWhatIsGone: where a Service went away before the API answered, flows are
// forgotten once the rules are written.
func TestFlowsOfWhatIsGone(t *testing.T) {
	udp := func(name, ip string) *corev1.Service {
		svc := service(name, ip)
		svc.Spec.Ports[0].Protocol = corev1.ProtocolUDP
		return svc
	}
	filter := &journal{told: make(chan told, 10), fail: make(chan error, 1), empty: true}
	p, _ := still(t, filter, &Known{Services: []*corev1.Service{udp("moved", "10.96.0.1"), udp("old", "10.96.0.2"), udp("stays", "10.96.0.3")}})
	if err := p.recall(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, svc := range []*corev1.Service{udp("moved", "10.96.0.4"), udp("stays", "10.96.0.3")} {
		p.tracker.Service(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}, svc)
	}
	filter.fail <- errors.New("no")
	if err := p.sync(t.Context()); err == nil || filter.forgotten != nil {
		t.Fatalf("when rules cannot be written it says %v and forgets %v, want an error and nothing", err, filter.forgotten)
	}
	if err := p.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, flow := range filter.forgotten {
		got = append(got, flow.To.String())
	}
	slices.Sort(got)
	if want := []string{"10.96.0.1", "10.96.0.2", "10.96.0.3", "10.96.0.4"}; !slices.Equal(slices.Compact(got), want) {
		t.Errorf("it forgets flows to %v, want %v", got, want)
	}
}
