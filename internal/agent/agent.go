package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/claims"
	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/credentialprovider"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/csi"
	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/nodestatus"
	"github.com/everynode/everynode/internal/agent/ownaddress"
	"github.com/everynode/everynode/internal/agent/plugins"
	"github.com/everynode/everynode/internal/agent/podresources"
	"github.com/everynode/everynode/internal/agent/probes"
	"github.com/everynode/everynode/internal/agent/referred"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/scrape"
	"github.com/everynode/everynode/internal/agent/staticpods"
	"github.com/everynode/everynode/internal/agent/status"
	"github.com/everynode/everynode/internal/agent/streaming"
	"github.com/everynode/everynode/internal/agent/volumes"
	"github.com/everynode/everynode/internal/dns"
	"github.com/everynode/everynode/internal/proxy"
)

// connectPatience is how long the agent waits for a runtime that does not answer, connectRetry after how long it tries again.
const (
	connectPatience = 10 * time.Second
	connectRetry    = time.Second
)

// Agent is one node of a cluster.
type Agent struct {
	cfg config.Config
	clk clock.WithTicker
	// programs say with which credentials images are pulled; nil for none.
	programs *credentialprovider.Programs
	// cgroups are there once the runtime has told who makes them.
	cgroups *cgroups.Cgroups
	// addresses are the node's, from Run on.
	addresses *ownaddress.Addresses
}

// New checks the configuration; Run does the rest.
func New(cfg config.Config) (*Agent, error) {
	cfg, err := cfg.Complete()
	if err != nil {
		return nil, err
	}
	if err := cfg.CheckMachine("/"); err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, clk: clock.RealClock{}}
	if cfg.ProviderConfig != "" || cfg.ProviderDir != "" {
		if a.programs, err = credentialprovider.Load(cfg.ProviderConfig, cfg.ProviderDir, a.clk); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Run joins the cluster and runs the node's pods until ctx ends. Containers run on when it returns. The error says why the
// node cannot go on; nil after ctx ended.
func (a *Agent) Run(ctx context.Context) error {
	var err error
	if a.addresses, err = nodeAddresses(ctx, &a.cfg); err != nil {
		return err
	}
	if err := findAddress(ctx, a.cfg.DataDir, a.addresses); err != nil {
		return unlessEnded(ctx, err)
	}
	identity, err := join.Join(ctx, join.Config{
		Server: a.cfg.Server, Token: a.cfg.Token, NodeName: a.cfg.NodeName, NodeIPs: a.addresses.List, DataDir: a.cfg.DataDir, Clock: a.clk,
		TrustInterval: a.cfg.TrustInterval,
	})
	if err != nil {
		return unlessEnded(ctx, fmt.Errorf("join the cluster: %w", err))
	}
	if err := csi.Share(a.cfg.KubeletDir); err != nil {
		return err
	}
	services, err := a.connect(ctx)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	defer services.Close(context.WithoutCancel(ctx))
	if err := a.layCgroups(ctx, services.Runtime); err != nil {
		return unlessEnded(ctx, err)
	}
	client, err := newClient(identity.RESTConfig())
	if err != nil {
		return err
	}
	// A node that shuts down in order lives on for a while after it was told to end.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	n, err := a.assemble(life, services, client, identity)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		if a.cfg.ShutdownGrace > 0 && machineStops(life, systemdDir, systemState) {
			a.newShutdown(n).run(life)
		}
		end(nil)
	})
	defer stop()
	return n.run(life, end)
}

func (a *Agent) newShutdown(n *node) *shutdown {
	return &shutdown{grace: a.cfg.ShutdownGrace, critical: a.cfg.ShutdownGraceCritical, pods: n.pods, clock: a.clk,
		announce: n.reporter.ShutDown, reported: n.statuses.Reported}
}

// unlessEnded drops an error that comes from being told to end.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// connect waits a while for the runtime, which may start at the same time.
func (a *Agent) connect(ctx context.Context) (cri.Services, error) {
	for deadline := a.clk.Now().Add(connectPatience); ; {
		services, err := cri.Connect(ctx, a.cfg.RuntimeEndpoint)
		if err == nil {
			return services, nil
		}
		if !a.clk.Now().Before(deadline) {
			return cri.Services{}, fmt.Errorf("%w; start the container runtime, or name its socket with --runtime-endpoint", err)
		}
		select {
		case <-ctx.Done():
			return cri.Services{}, err
		case <-a.clk.After(connectRetry):
		}
	}
}

// newClient returns a client that nothing but the API server slows down.
func newClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = "everynode-agent"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return client, nil
}

// node is everything that runs on a node, put together.
type node struct {
	identity  *join.Identity
	reporter  *nodestatus.Reporter
	sources   *sources
	runtime   *cri.Runtime
	volumes   *volumes.Manager
	devices   *devices.Manager
	claims    *claims.Manager
	drivers   *csi.Drivers
	plugins   *plugins.Watcher
	resources *podresources.Server
	statuses  *status.Manager
	pods      *pods
	folder    *staticpods.Folder
	mirrors   *mirrors
	images    *images.Collector
	stock     stock
	evictor   *evictor
	gauge     gauge
	server    *streaming.Server
	network   *network.Network
	// networkKeeper is nil where there is no network.
	networkKeeper *remember.NetworkKeeper
	names         *dns.Server
	keeper        *remember.Keeper
	podKeeper     *remember.PodKeeper
	book          *book
	references    *referred.Cache
	classes       *runtimeClasses
	services      *proxy.Proxy
	scraped       *scrape.Pages
	broadcaster   record.EventBroadcaster
	client        kubernetes.Interface
	clock         clock.WithTicker
	// healthAddress is where the node tells of its health; empty for nowhere.
	healthAddress string
	// nodeName is the node's, and reserved what is kept from its pods.
	nodeName string
	reserved corev1.ResourceList
	cgroups  *cgroups.Cgroups
	// addresses are the node's.
	addresses *ownaddress.Addresses
}

// followAddress looks for the node's address, until ctx ends.
func (n *node) followAddress(ctx context.Context) {
	n.addresses.OnChange(n.addressChanged)
	n.addresses.Run(ctx)
}

// addressChanged has the node's new address reach its Node, its serving certificate and its pods.
func (n *node) addressChanged() {
	n.reporter.Check()
	n.identity.AddressChanged()
	n.pods.addressChanged()
}

func (a *Agent) assemble(ctx context.Context, services cri.Services, client kubernetes.Interface, identity *join.Identity) (*node, error) {
	n := &node{identity: identity, client: client, clock: a.clk, healthAddress: a.cfg.HealthAddress, nodeName: a.cfg.NodeName, addresses: a.addresses, reserved: a.cfg.Reserved, cgroups: a.cgroups, sources: newSources(client, a.cfg.NodeName), broadcaster: record.NewBroadcaster(record.WithContext(ctx))}
	recorder := n.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: eventSource, Host: a.cfg.NodeName})
	n.devices, n.drivers, n.claims = a.newDevices(n), a.newDrivers(n), a.newClaims(n)
	n.plugins = a.newPlugins(n)
	var err error
	if n.reporter, err = a.newReporter(n, services, recorder); err != nil {
		return nil, err
	}
	capacity := n.reporter.NodeAllocatable()
	lowest, err := cri.LowestOOMScore()
	if err != nil {
		return nil, err
	}
	n.scraped = a.newScraped(n)
	recalled, known, err := a.recall(ctx, n)
	if err != nil {
		return nil, err
	}
	n.runtime = cri.New(cri.Config{
		Relisted: n.scraped.Relisted,
		Service:  services.Runtime, Lister: services.Lists,
		LogRoot: filepath.Join(a.cfg.LogDir, "pods"), LinkRoot: filepath.Join(a.cfg.LogDir, "containers"),
		PodsRoot: filepath.Join(a.cfg.DataDir, "containers"), Cgroups: a.cgroups, Handler: n.classes.handler,
		DNS:            cri.DNS{Servers: a.cfg.ClusterDNS, Domain: a.cfg.ClusterDomain, ResolvConf: a.cfg.ResolvConf},
		MemoryCapacity: capacity.Memory().Value(), MinOOMScore: lowest, SeccompDefault: a.cfg.SeccompDefault, MaxLogSize: a.cfg.LogMaxBytes, MaxLogFiles: a.cfg.LogMaxFiles,
	})
	objs := objects{Cache: n.references, client: client, services: n.sources.serviceLister(), servicesRead: n.sources.services.HasSynced, known: known, file: n.file,
		noSecrets: a.cfg.RememberSecrets == config.RememberNoSecrets, allocatable: n.reporter.NodeAllocatable,
		nodeName: a.cfg.NodeName, node: n.sources.ownNode}
	ev := events{recorder: recorder}
	a.reportDevices(ctx, n, ev)
	environment := func(ctx context.Context, pod *corev1.Pod, c *corev1.Container, podIPs []string) ([]env.Var, error) {
		if !objs.servicesKnown() && !staticpods.IsUID(pod.UID) {
			return nil, errors.New("services have not yet been read at least once, cannot construct envvars")
		}
		return env.Build(ctx, pod, c, podIPs, a.addresses.Texts(), objs)
	}
	puller := a.newPuller(n, services, objs, ev)
	n.volumes = volumes.New(volumes.Config{
		Image:   n.imageVolume(puller),
		RootDir: filepath.Join(a.cfg.DataDir, "pods"), Objects: objs, Claims: objs, Drivers: n.drivers, Clock: a.clk,
		Tokens: tokensOf(recalled), TokenIssued: n.podKeeper.NoteToken,
		Env: func(pod *corev1.Pod, c *corev1.Container) ([]env.Var, error) {
			return environment(ctx, pod, c, podIPsOf(pod))
		},
		OnRefreshError: func(pod *corev1.Pod, err error) {
			ev.pod(pod, corev1.EventTypeWarning, "FailedMount", err.Error())
		},
	})
	n.statuses = status.New(status.APIWriter{Client: client})
	n.mirrors = newMirrors(n, a.clk)
	n.pods = newPods(ctx, parts{
		runtime: n.runtime, devices: n.devices, claims: n.claims, volumes: n.volumes, statuses: n.mirrors, events: ev, env: environment, clock: a.clk,
		prober: prober{manager: probes.New(probes.Config{
			Exec: n.runtime.ExecSync, OnEvent: ev.container, OnProbe: n.probed, Version: a.cfg.Version, Clock: a.clk,
			OnChange: func(uid types.UID) { n.pods.probeChanged(uid) },
		}), stopped: func(uid types.UID) { n.scraped.Unprobed(string(uid)) }},
		images: puller, hostIPs: a.addresses.Texts, node: n.sources.ownNode, references: objs.Cache, book: n.book,
		sysctls: a.cfg.AllowedUnsafeSysctls, appArmor: config.HasAppArmor("/"),
	})
	n.pods.recall(recalled.Pods)
	n.pods.statics.awaited, n.pods.statics.changed, n.pods.statics.mirror = true, n.mirrors.poke, n.mirrors.seen
	n.folder = a.newFolder(ctx, n.pods)
	n.resources = a.newPodResources(n)
	a.makeRoomKeepers(n, services)
	if n.server, err = a.newServer(n, client, identity); err != nil {
		return nil, err
	}
	if n.network, err = a.newNetwork(ctx, n, identity); err != nil {
		return nil, err
	}
	if n.names, err = a.newNames(n.sources, known); err != nil {
		return nil, err
	}
	if n.services, err = a.newServices(n.sources, known); err != nil {
		return nil, err
	}
	return n, nil
}

// newFolder reads the static pods.
func (a *Agent) newFolder(ctx context.Context, p *pods) *staticpods.Folder {
	return staticpods.NewFolder(staticpods.Config{
		Path: a.cfg.ManifestPath, NodeName: a.cfg.NodeName, Clock: a.clk, OnPods: p.staticPods,
		OnProblem: func(path string, err error) {
			klog.FromContext(ctx).Error(err, "A static pod's manifest cannot be used", "path", path)
			p.events.node(a.cfg.NodeName, "InvalidStaticPod", path+": "+err.Error())
		},
	})
}

func podIPsOf(pod *corev1.Pod) []string {
	out := make([]string, len(pod.Status.PodIPs))
	for i, ip := range pod.Status.PodIPs {
		out[i] = ip.IP
	}
	return out
}

func (a *Agent) newReporter(n *node, services cri.Services, recorder record.EventRecorder) (*nodestatus.Reporter, error) {
	return nodestatus.New(nodestatus.Config{
		NodeName: a.cfg.NodeName, NodeIPs: a.addresses.List, Labels: a.cfg.Labels, Taints: a.cfg.Taints,
		Client: n.client, Recorder: recorder, Node: n.sources.ownNode, KubeletVersion: a.cfg.Version, KubeletPort: a.cfg.Port,
		MaxPods: a.cfg.MaxPods, Reserved: a.cfg.Reserved,
		Restored: n.identity.Restored, Making: n.identity.Making, Settled: n.identity.Settle,
		DevicesForgotten: n.devices.Forgot(), DevicesReset: n.devices.Remember,
		Healthy: func() error { return n.pods.healthy() },
		DataDir: a.cfg.DataDir, CgroupRoot: a.cgroups.Root(), Clock: a.clk, Thresholds: a.cfg.Rules.Hard, Pressures: func() []corev1.NodeConditionType { return n.evictor.pressures() }, Network: a.networkCondition(n), Devices: n.devices.Totals,
		ImageFS: func(ctx context.Context) (string, error) { return cri.ImageFS(ctx, services.Images) },
		Runtime: func(ctx context.Context) (nodestatus.Runtime, error) {
			info, err := n.runtime.Info(ctx)
			return nodestatus.Runtime{Name: info.Name, Version: info.Version,
				StrictGroups: info.StrictGroups, Handlers: info.Handlers, Ready: nodestatus.Condition(info.Ready), NetworkReady: nodestatus.Condition(info.NetworkReady)}, err
		},
		Images: func(ctx context.Context) ([]corev1.ContainerImage, error) {
			list, err := cri.ListImages(ctx, services.Images)
			out := make([]corev1.ContainerImage, len(list))
			for i, image := range list {
				out[i] = corev1.ContainerImage{Names: image.Names, SizeBytes: image.Size}
			}
			return out, err
		},
	})
}

// run runs all parts until ctx ends. A part that fails ends it through fail.
func (n *node) run(ctx context.Context, fail context.CancelCauseFunc) error {
	defer n.broadcaster.Shutdown()
	n.broadcaster.StartRecordingToSink(patientSink{&typedcorev1.EventSinkImpl{Interface: n.client.CoreV1().Events("")}, ctx, n.clock})
	handled, err := n.sources.feed(n.pods)
	if err != nil {
		return fmt.Errorf("watch the node's pods: %w", err)
	}
	var wg sync.WaitGroup
	start := func(what string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				fail(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	quiet := func(run func(context.Context)) func(context.Context) error {
		return func(ctx context.Context) error {
			run(ctx)
			return nil
		}
	}
	start("keep the node's certificates", n.identity.Run)
	start("follow the node's address", quiet(n.followAddress))
	start("follow the servers", quiet(n.followServers))
	start("serve logs and streams", n.server.Run)
	if n.healthAddress != "" {
		serve := func(ctx context.Context) error { return streaming.ServeHealth(ctx, n.healthAddress, n.pods.healthy) }
		start("tell of the node's health", again(n.clock, "the answer about the node's health", serve))
	}
	start("report the node", n.reporter.Run)
	if n.network != nil {
		start("keep the pod network", n.network.Run)
		start("keep what is known of networks", n.networkKeeper.Run)
	}
	if n.names != nil {
		start("answer for names", n.names.Run)
	}
	start("keep what is known of services", n.keeper.Run)
	start("keep what is known of pods", n.podKeeper.Run)
	if n.services != nil {
		start("make services lead to pods", n.services.Run)
	}
	start("refresh volumes", n.volumes.Run)
	start("serve device plugins", again(n.clock, "the socket for device plugins", n.devices.Run))
	start("watch plugins", quiet(n.plugins.Run))
	start("take back devices of drivers that are away", quiet(n.claims.Run))
	start("tell of pods' devices", again(n.clock, "the socket that tells of pods' devices", n.resources.Run))
	start("give back volumes", quiet(n.sweepDrivers))
	start("report pods", quiet(n.statuses.Run))
	start("watch the runtime", quiet(func(ctx context.Context) { n.runtime.Watch(ctx, n.pods) }))
	start("keep from pods what is reserved", again(n.clock, "the bound of all pods", n.boundPods))
	start("remove images", quiet(n.images.Run))
	start("evict pods", quiet(n.evictor.run))
	start("watch static pods", quiet(n.folder.Run))
	start("mirror static pods", quiet(n.mirrors.run))
	start("run pods", quiet(func(ctx context.Context) { n.pods.wait(ctx) }))
	start("rotate logs", quiet(n.runtime.RotateLogs))
	start("clear up", quiet(n.sweep))
	start("watch the API", quiet(func(ctx context.Context) { n.sources.run(ctx, handled, n.listed) }))
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// file reads a file of a volume of the pod.
func (n *node) file(pod *corev1.Pod, volume, path string) ([]byte, error) {
	return n.volumes.File(pod, volume, path)
}

// listed says that everything that the API had at first was seen.
func (n *node) listed() {
	n.pods.apiListed()
	n.mirrors.poke()
}

// sweep removes, once, what pods left that are neither in the API nor in the runtime.
func (n *node) sweep(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-n.pods.knownC:
	}
	n.devices.Sweep(n.pods.remains)
	err := errors.Join(n.volumes.Sweep(ctx, n.pods.remains), n.runtime.Sweep(n.pods.remains))
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Could not clear up after pods of an earlier run")
	}
}
