package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/node/peer"
)

// DefaultConfDir is where container runtimes look for the CNI configuration.
const DefaultConfDir = "/etc/cni/net.d"

// How often routes and rules are compared with what they should be, and how long to wait
// after something could not be applied.
const (
	repairEvery = time.Minute
	retryAfter  = 2 * time.Second
	// maxTold is how many refused nodes a line of the log names.
	maxTold = 10
)

// Config says what a node's network works with.
type Config struct {
	// NodeName is the node that this process runs on.
	NodeName string
	// AllNodes tells of all nodes what AllNodes reads.
	AllNodes cache.ListerWatcher
	// Own has this node's Node, on which the control plane writes what pod networks there
	// are. Somebody else runs it.
	Own cache.SharedIndexInformer
	// Mode says how packets get to the pods of other nodes; Auto if empty.
	Mode Mode
	// APIServers is where the API server answers; nil for nowhere that is known.
	APIServers func() []netip.AddrPort
	// Changed is called when State has changed; nil for nobody.
	Changed func()
	// Known is what was known in an earlier run of the agent, nil for nothing. Learned is called when Network.Known has
	// changed; nil for nobody.
	Known   *Known
	Learned func()
	// ConfDir is where the CNI configuration goes; DefaultConfDir if empty.
	ConfDir string
}

// Network keeps a node's network as the nodes of the cluster say.
type Network struct {
	config Config
	kernel kernel

	mu      sync.Mutex
	pending map[string]facts
	// told is what the control plane told this node of pod networks.
	told node.PodNetworks
	// moved says that routes of the machine have changed.
	moved bool
	// alone says that what is known is what was remembered.
	alone bool
	state State
	wake  chan struct{}

	// working is held while the goroutine of Run, to which the rest belongs, changes peers; it reads them without.
	working sync.Mutex
	peers   *peers
	// patience is alonePatience, but in tests; and recallEvery repairEvery.
	patience, recallEvery time.Duration
	// found is what was there when the agent started without a control plane; nil before somebody looked.
	found *remains
	// whole says that the packet filter rules must be made afresh.
	whole bool
	// tunnel is this node's end of tunnels as it was made last.
	tunnel tunnel
	// servers is where the API server answers, as the rules have it.
	servers []netip.AddrPort
	// unusable are the paths that the kernel refuses because of where they lead.
	unusable map[netip.Prefix]error
	// missing are the nodes that cannot be reached, refused is what was not taken from nodes, problem what is wrong with
	// what this node says of itself, all as they were logged last.
	missing, refused []string
	problem          string
}

// State is how the network of the node is.
type State struct {
	// Known is false until the network was set up, or failed to be, for the first time.
	Known bool
	// Problem says what is wrong with it, nil for nothing.
	Problem error
}

// State says how the network is now.
func (n *Network) State() State {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

// New checks that the machine has what the network needs.
func New(config Config) (*Network, error) {
	if config.NodeName == "" || config.AllNodes == nil || config.Own == nil {
		return nil, errors.New("a node's network needs the node's name, its Node, and who tells of all nodes")
	}
	if config.ConfDir == "" {
		config.ConfDir = DefaultConfDir
	}
	if config.Mode == "" {
		config.Mode = Auto
	}
	m, err := newMachine()
	if err != nil {
		return nil, err
	}
	return newNetwork(config, m), nil
}

func newNetwork(config Config, k kernel) *Network {
	return &Network{
		config: config, kernel: k, pending: map[string]facts{}, wake: make(chan struct{}, 1),
		peers: newPeers(config.NodeName, config.Mode), whole: true, unusable: map[netip.Prefix]error{},
		patience: alonePatience, recallEvery: repairEvery,
	}
}

// Run keeps the network until the context ends. What it made stays: pods run on
// while an agent is restarted.
func (n *Network) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	told, err := n.watch(ctx, &wg)
	if err != nil {
		return err
	}
	wg.Go(func() { n.follow(ctx) })
	// Without all nodes, paths to the others would look superfluous.
	if !n.hear(ctx, &wg, told) {
		return nil
	}
	repair := time.NewTicker(repairEvery)
	defer repair.Stop()
	complete := true // compare all paths, because nothing is known of them yet
	for {
		var retry <-chan time.Time
		err := n.sync(ctx, complete)
		if ctx.Err() != nil {
			return nil
		}
		n.conclude(errors.Join(err, n.peers.problem()))
		if err != nil {
			klog.FromContext(ctx).Error(err, "The network of the node is not as it should be; trying again", "in", retryAfter)
			retry = time.After(retryAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.wake:
			complete = false
		case <-repair.C:
			complete = true
		case <-retry:
			complete = true
		}
	}
}

// follow notes when routes of the machine change: a link went down or came back,
// and took ours with it, or another node is on a link now.
func (n *Network) follow(ctx context.Context) {
	err := n.kernel.follow(ctx, func() {
		n.mu.Lock()
		n.moved = true
		n.mu.Unlock()
		n.poke()
	})
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Changes of the machine's routes are noticed late", "after", repairEvery)
	}
}

// conclude keeps what became of a sync. Before the node has a pod network there is
// nothing to say.
func (n *Network) conclude(err error) {
	if err == nil && !n.peers.ownPods().IsValid() {
		return
	}
	n.mu.Lock()
	before := n.state
	n.state = State{Known: true, Problem: err}
	n.mu.Unlock()
	if n.config.Changed != nil && (!before.Known || (before.Problem == nil) != (err == nil)) {
		n.config.Changed()
	}
}

func (n *Network) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// watch collects what is said of nodes; nothing is acted upon there. told reports
// whether everything that there was at first was collected.
func (n *Network) watch(ctx context.Context, wg *sync.WaitGroup) (told []cache.InformerSynced, err error) {
	own, err := n.config.Own.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    n.noteOwn,
		UpdateFunc: func(_, obj any) { n.noteOwn(obj) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch the node: %w", err)
	}
	box := newInbox(n.note, n.config.remembered())
	reflector := cache.NewReflectorWithOptions(n.config.AllNodes, &peer.Node{}, box, cache.ReflectorOptions{
		Name: "the networks of all nodes",
	})
	wg.Go(func() { reflector.RunWithContext(ctx) })
	return []cache.InformerSynced{own.HasSynced, func() bool {
		select {
		case <-box.full:
			return true
		default:
			return false
		}
	}}, nil
}

// note keeps the last that was said of a node until the next sync; zero facts for one
// that is gone.
func (n *Network) note(name string, now facts) {
	n.mu.Lock()
	n.pending[name] = now
	n.mu.Unlock()
	n.poke()
}

// noteOwn keeps what the control plane wrote on this very node; what others' say does
// not count. It is kept when the node is deleted: it will be written on the next one.
func (n *Network) noteOwn(obj any) {
	object, ok := obj.(*corev1.Node)
	if !ok || object.Name != n.config.NodeName {
		return
	}
	if told, ok := node.PodNetworksOf(object); ok {
		n.mu.Lock()
		n.told = told
		n.mu.Unlock()
		n.poke()
	}
}

// sync applies what nodes said since the last time; complete also looks at the
// machine's own routes, compares all paths and rules, and makes up for what failed before.
func (n *Network) sync(ctx context.Context, complete bool) error {
	n.mu.Lock()
	pending := n.pending
	n.pending = map[string]facts{}
	complete = complete || n.moved
	n.moved = false
	limits, alone := bounds{PodNetworks: n.told}, n.alone
	n.mu.Unlock()
	changes, commands, err := n.learn(pending, limits, complete)
	if !alone && n.config.Learned != nil && slices.ContainsFunc(changes, func(d delta) bool { return !d.empty() }) {
		n.config.Learned()
	}
	err = errors.Join(err, n.applyPaths(ctx, changes, complete), n.applyRules(ctx, commands, complete), n.configure())
	n.tell(ctx)
	return err
}

// learn takes what nodes said into account. It returns what that means for paths, and which commands the rules need.
func (n *Network) learn(pending map[string]facts, limits bounds,
	complete bool) (changes []delta, commands string, err error) {
	n.working.Lock()
	defer n.working.Unlock()
	servers := n.apiServers()
	for _, s := range servers {
		limits.kept = append(limits.kept, s.Addr())
	}
	if !slices.Equal(servers, n.servers) {
		n.servers, n.whole = servers, true
	}
	if !n.peers.bounds.equal(limits) {
		changes = append(changes, n.peers.rebound(limits))
		n.whole = true
	}
	if complete {
		var now ways
		if now, err = n.kernel.ways(); err == nil {
			changes = append(changes, n.peers.rewire(now))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pending)) {
		d := n.peers.update(name, pending[name])
		if d.empty() {
			continue
		}
		changes = append(changes, d)
		commands += changedRuleset(d.joined, d.parted)
		if d.ownPods.IsValid() {
			n.whole = true
		}
	}
	return changes, commands, err
}

func (n *Network) apiServers() []netip.AddrPort {
	if n.config.APIServers == nil {
		return nil
	}
	servers := n.config.APIServers()
	slices.SortFunc(servers, netip.AddrPort.Compare)
	return slices.Compact(servers)
}

// applyPaths brings the tunnel and the paths up to date: the tunnel before the
// paths that need it, and its end after them.
func (n *Network) applyPaths(ctx context.Context, changes []delta, complete bool) error {
	var failures []error
	want := n.peers.tunnel()
	complete = complete || want != n.tunnel
	if complete && want != (tunnel{}) {
		failures = append(failures, n.setTunnel(want))
	}
	for _, d := range changes {
		failures = append(failures, n.applyDelta(ctx, d))
	}
	if complete {
		have, err := n.kernel.paths()
		failures = append(failures, err)
		if err == nil {
			failures = append(failures, n.applyDelta(ctx, n.peers.repair(have)))
		}
		if want == (tunnel{}) {
			failures = append(failures, n.setTunnel(want))
		}
	}
	return errors.Join(failures...)
}

func (n *Network) setTunnel(want tunnel) error {
	err := n.kernel.setTunnel(want)
	if err == nil {
		n.tunnel = want
	}
	return err
}

func (n *Network) applyDelta(ctx context.Context, d delta) error {
	logger := klog.FromContext(ctx)
	var failures []error
	for _, to := range d.gone {
		logger.V(2).Info("Removing path", "to", to)
		failures = append(failures, n.kernel.removePath(to))
		delete(n.unusable, to)
	}
	for _, p := range d.paths {
		logger.V(2).Info("Adding path", "to", p.to, "via", p.via, "tunnel", p.tunnel)
		err := n.kernel.addPath(p)
		if errors.Is(err, errNextHop) {
			n.unusable[p.to] = err
			continue // It is the other node's address that is wrong, not this node.
		}
		delete(n.unusable, p.to)
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// tell logs, when it changes, which nodes' pods cannot be reached, and why.
func (n *Network) tell(ctx context.Context) {
	logger := klog.FromContext(ctx)
	missing := n.peers.unreachable()
	slices.Sort(missing)
	if len(missing) > 0 && !slices.Equal(missing, n.missing) {
		logger.Info("Nodes are not on a link of this one, and their pods cannot be reached by host gateway", "nodes", missing)
	}
	refused := n.peers.refused()
	for _, err := range n.unusable {
		refused = append(refused, err.Error())
	}
	slices.Sort(refused)
	if len(refused) > 0 && !slices.Equal(refused, n.refused) {
		logger.Info(
			"Nodes say of themselves what cannot be, and are left out",
			"count", len(refused), "what", refused[:min(len(refused), maxTold)],
		)
	}
	problem := ""
	if err := n.peers.problem(); err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != n.problem {
		logger.Info("This node's pods cannot be connected", "because", problem)
	}
	n.missing, n.refused, n.problem = missing, refused, problem
}

// applyRules applies the changes, or all rules if changes are not enough. When it is complete, it looks whether
// somebody else flushed the rules meanwhile, as a restart of the service nftables does, and makes them again.
func (n *Network) applyRules(ctx context.Context, changes string, complete bool) error {
	pods := n.peers.ownPods()
	if !pods.IsValid() {
		return nil // without pods there is nothing to masquerade
	}
	want := rules{
		pods:    pods,
		cluster: n.peers.bounds.Cluster,
		nodes:   slices.Collect(maps.Keys(n.peers.addresses)),
		servers: n.servers,
	}
	if n.whole {
		return n.applyWhole(ctx, want)
	}
	if changes != "" {
		if err := n.kernel.applyRules(ctx, changes); err != nil {
			n.whole = true
			return err
		}
	}
	if !complete {
		return nil
	}
	have, err := n.kernel.counts()
	if err != nil || have.equal(want.counts()) {
		return err
	}
	klog.FromContext(ctx).Info("Somebody else changed the packet filter rules of the pod network; making them again")
	return n.applyWhole(ctx, want)
}

func (n *Network) applyWhole(ctx context.Context, want rules) error {
	err := n.kernel.applyRules(ctx, wholeRuleset(want))
	n.whole = err != nil
	return err
}

// configure tells the container runtime about the node's pod network. It comes
// last: from then on pods start.
func (n *Network) configure() error {
	if !n.peers.ownPods().IsValid() {
		return nil
	}
	config, err := cniConfig(n.peers.ownPods(), n.peers.mtu())
	if err != nil {
		return err
	}
	if err := writeConf(n.config.ConfDir, config); err != nil {
		return fmt.Errorf("configure the pod network: %w", err)
	}
	return nil
}
