package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/apiserver"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/storages"
	"github.com/everynode/everynode/internal/objects/nodestartup"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/test/chaos/faults"
	"github.com/everynode/everynode/test/chaos/ground"
	"github.com/everynode/everynode/test/chaos/machines"
	"github.com/everynode/everynode/test/chaos/plan"
	"github.com/everynode/everynode/test/chaos/store"
)

// parts is a control plane of which each control loop runs apart, behind a line
// of its own: the API server and the database are those of internal/server.
type parts struct {
	ctx     context.Context //nolint:containedctx // The round's; everything ends with it.
	seed    uint64
	journal *journal
	fleet   *machines.Fleet
	ills    *illness.Plan // the labels of nodes; nil without policies
	db      *etcd.Server
	config  *restclient.Config
	client  kubernetes.Interface
	ours    *everynode.Client
	mapper  meta.RESTMapper
	kinds   []resource.Definition
	loops   map[string]*loop
	busy    sync.Map // loops that something is being done to
	end     func()
	trouble plan.Trouble
	byPods  bool // no agent is asked for images
	// accounts are who loops are to the API, but for those that are administrators.
	accounts map[string]restclient.ImpersonationConfig
	// dead says that the next time all faults end, silent nodes stay so.
	dead bool
}

// startParts starts everything in the round's folder.
func startParts(ctx context.Context, r *round) (*parts, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &parts{ctx: ctx, seed: r.seed, journal: r.journal, fleet: machines.New(), loops: map[string]*loop{}, end: cancel,
		accounts: map[string]restclient.ImpersonationConfig{plan.StartupLoop: ground.Account(nodestartup.Account)}}
	p.trouble, p.byPods, p.dead = r.plan.Trouble, r.plan.ByPods, r.plan.Trouble == plan.DeadNodes
	if r.plan.Policies || r.plan.Varied {
		ills, err := illness.Parse(ground.Ills(&r.plan))
		if err != nil {
			cancel()
			return nil, err
		}
		p.ills = ills
	}
	if p.trouble == plan.Content || r.plan.Fetches {
		p.accounts["daemonset"] = ground.Account("daemon-set-controller")
	}
	if err := p.serve(r.dir); err != nil {
		p.abandon()
		return nil, err
	}
	for i, name := range r.plan.Runs() {
		line := faults.NewLine(p.config.Transport, rand.New(rand.NewPCG(r.seed, uint64(i)+1)))
		p.loops[name] = &loop{name: name, line: line}
		if err := p.loops[name].start(p); err != nil {
			p.abandon()
			return nil, err
		}
	}
	return p, nil
}

// serve starts the database and the API server.
func (p *parts) serve(dir string) error {
	bundle, err := pki.LoadOrCreate(filepath.Join(dir, "pki"), pki.Options{ServerIPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return err
	}
	p.db, err = etcd.Start(p.ctx, etcd.Options{Dir: filepath.Join(dir, "etcd"), NoFsync: true, Keep: time.Hour})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, services, err := net.ParseCIDR("10.96.0.0/16")
	if err != nil {
		return err
	}
	api, err := apiserver.New(apiserver.Config{
		PKI: bundle, Listener: listener, OpenStorage: p.db.Open, OpenHot: storages.Hot(p.db.OpenHot),
		OpenReserving: p.db.OpenReserving, ServiceCIDR: services,
		AdvertiseAddress: net.IPv4(127, 0, 0, 1), AdvertisePort: listener.Addr().(*net.TCPAddr).Port,
	})
	if err != nil {
		_ = listener.Close()
		return err
	}
	ended := make(chan error, 1)
	serving, stop := context.WithCancel(context.WithoutCancel(p.ctx))
	go func() { ended <- api.Run(serving) }()
	cancel := p.end
	p.end = func() {
		cancel()
		stop()
		if err := <-ended; err != nil {
			p.journal.broken(err)
		}
		_ = listener.Close()
	}
	p.config, p.kinds = api.LoopbackConfig(), api.Kinds()
	p.client, err = kubernetes.NewForConfig(p.config)
	if err != nil {
		return err
	}
	p.ours, err = everynode.NewForConfig(p.config)
	if err != nil {
		return err
	}
	if err := until(p.ctx, "the API server", func(ctx context.Context) error {
		return p.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(p.client.Discovery())
	if err != nil {
		return fmt.Errorf("ask which kinds there are: %w", err)
	}
	p.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	for i := range store.Kept {
		go func() {
			if err := store.Watch(p.ctx, p.db, i, true, p.journal.happened); err != nil && p.ctx.Err() == nil {
				p.journal.broken(err)
			}
		}()
	}
	return nil
}

// known is a mapper that need not be asked for.
func known(mapper meta.RESTMapper) func(*restclient.Config, *http.Client) (meta.RESTMapper, error) {
	return func(*restclient.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil }
}

// abandon ends what was started.
func (p *parts) abandon() {
	p.stop()
	if p.db != nil {
		p.db.Close()
	}
}

// stop ends everything but the database.
func (p *parts) stop() {
	for _, l := range p.loops {
		if l.kill != nil {
			l.stop()
		}
	}
	p.end()
}

// finish ends everything and puts the whole history into the journal.
func (p *parts) finish(ctx context.Context) error {
	p.stop()
	defer p.db.Close()
	p.journal.record.Told = true
	return p.journal.read(ctx, p.db)
}

func (p *parts) api() kubernetes.Interface { return p.client }

func (p *parts) own() *everynode.Client { return p.ours }

func (p *parts) addNode(back string) string { return p.fleet.Add(back) }

func (p *parts) removeNode(name string) { p.fleet.Remove(name) }

// strikeNode does what goes wrong with a node; false if it is not about one.
func (p *parts) strikeNode(ctx context.Context, s plan.Step) bool {
	switch s.Op {
	case plan.SilenceNode:
		if name := p.fleet.Silence(s.Pick); name != "" {
			p.journal.fault("%s falls silent", name)
		}
	case plan.WakeNode:
		for _, name := range p.fleet.Wake(s.Pick) {
			p.journal.note("%s comes back", name)
		}
	case plan.RefuseNode:
		words := ""
		if p.trouble == plan.LongWords {
			words = longWords
		}
		refuseNode(ctx, p.loops[s.Loop].line, p.journal, fmt.Sprintf("node-%02d", 1+s.Pick%6), words, s.For)
	default:
		return false
	}
	return true
}

// strike does what goes wrong, and undoes it after its time.
func (p *parts) strike(ctx context.Context, s plan.Step) {
	if p.strikeNode(ctx, s) {
		return
	}
	l := p.loops[s.Loop]
	if _, taken := p.busy.LoadOrStore(l.name, true); taken {
		return // one thing at a time
	}
	defer p.busy.Delete(l.name)
	p.journal.fault("%s %s", l.name, s.Op)
	switch s.Op {
	case plan.StopLoop:
		l.stop()
		sleep(ctx, s.For)
		if err := l.start(p); err != nil {
			p.journal.broken(err)
		}
	case plan.KillLoop:
		l.kill()
		if err := l.start(p); err != nil {
			p.journal.broken(err)
		}
	case plan.PauseLoop:
		l.line.Pause()
		sleep(ctx, s.For)
		l.line.Resume()
	case plan.DropWatches, plan.Relist:
		l.line.Drop(s.Op == plan.Relist)
		return
	case plan.SlowWatches:
		l.line.Slow(true)
		sleep(ctx, s.For)
		l.line.Slow(false)
	case plan.FlakyWrites:
		l.line.Flaky(true)
		sleep(ctx, s.For)
		l.line.Flaky(false)
	}
	p.journal.note("end  %s %s", l.name, s.Op)
}

// refuseNode is an admission policy about the pods of one node, which says words.
func refuseNode(ctx context.Context, line *faults.Line, j *journal, name, words string, d time.Duration) {
	j.fault("pods for %s are refused in %d letters", name, len(words))
	line.Refuse(name, words)
	sleep(ctx, d)
	line.Refuse("", "")
	j.note("end  pods for %s are refused", name)
}

// heal ends everything that goes wrong. In one round of three a node that is silent is so until it was noticed.
func (p *parts) heal(ctx context.Context) error {
	for _, l := range p.loops {
		l.line.Heal()
	}
	if p.dead {
		p.dead = false
		for _, name := range p.fleet.AllQuiet() {
			if err := p.noticed(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}
	if name := p.fleet.Quiet(); name != "" && p.seed%3 == 0 {
		if err := p.noticed(ctx, name); err != nil {
			return err
		}
	}
	for _, name := range p.fleet.Wake(-1) {
		p.journal.note("%s comes back", name)
	}
	return nil
}

// noticed waits until the cluster knows that a node is silent, or has lost it.
func (p *parts) noticed(ctx context.Context, name string) error {
	return until(ctx, "the silence of "+name+" to be noticed", func(ctx context.Context) error {
		n, err := p.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable }) {
			p.journal.note("the silence of %s was noticed", name)
			return nil
		}
		return errors.New("it is not tainted as unreachable")
	})
}

func (p *parts) faults() (n int) {
	for _, l := range p.loops {
		n += l.line.Faults()
	}
	return n
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
