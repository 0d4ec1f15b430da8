package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/again"
	"github.com/everynode/everynode/internal/agent/attached"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/entry"
	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/housekeeping"
	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/mend"
	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/nodestatus"
	"github.com/everynode/everynode/internal/agent/ownaddress"
	"github.com/everynode/everynode/internal/agent/podresources"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/recall"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/reserve"
	"github.com/everynode/everynode/internal/agent/scrape"
	"github.com/everynode/everynode/internal/agent/sources"
	"github.com/everynode/everynode/internal/agent/staticpods"
	"github.com/everynode/everynode/internal/agent/status"
	"github.com/everynode/everynode/internal/agent/streaming"
	"github.com/everynode/everynode/internal/agent/volumes"
	"github.com/everynode/everynode/internal/network/dns"
	"github.com/everynode/everynode/internal/network/proxy"
)

// node is everything that runs on a node, put together.
type node struct {
	identity  *join.Identity
	reporter  *nodestatus.Reporter
	sources   *sources.Sources
	runtime   *cri.Runtime
	volumes   *volumes.Manager
	attached  *attached.Attached
	resources *podresources.Server
	statuses  *status.Manager
	pods      *pods.Manager
	recalled  *recall.Recalled
	keepers   *housekeeping.Keepers
	folder    *staticpods.Folder
	mirrors   *staticpods.MirrorKeeper
	events    events.Recorder
	server    *streaming.Server
	network   *network.Network
	// networkKeeper is nil where there is no network.
	networkKeeper *remember.NetworkKeeper
	names         *dns.Server
	keeper        *remember.Keeper
	services      *proxy.Proxy
	scraped       *scrape.Pages
	broadcaster   record.EventBroadcaster
	client        kubernetes.Interface
	clock         clock.WithTicker
	// healthAddress is where the node tells of its health; empty for nowhere.
	healthAddress string
	nodeName      string
	bound         *reserve.Bound
	// addresses are the node's.
	addresses *ownaddress.Addresses
}

// followAddress looks for the node's address, until ctx ends. A new one reaches the Node, its serving certificate and
// its pods.
func (n *node) followAddress(ctx context.Context) {
	for _, part := range n.readdressed() {
		n.addresses.OnChange(part.AddressChanged)
	}
	n.addresses.Run(ctx)
}

// readdressed is a part that says the node's address to others.
type readdressed interface{ AddressChanged() }

// readdressed are all parts of that kind.
func (n *node) readdressed() []readdressed { return []readdressed{n.reporter, n.identity, n.pods} }

// run runs all parts until ctx ends. A part that fails ends it through fail.
func (n *node) run(ctx context.Context, fail context.CancelCauseFunc) error {
	defer n.broadcaster.Shutdown()
	n.broadcaster.StartRecordingToSink(events.Sink{
		EventSink: &typedcorev1.EventSinkImpl{Interface: n.client.CoreV1().Events("")},
		Context:   ctx,
		Clock:     n.clock,
	})
	handled, err := n.sources.Feed(n.pods)
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
	start("follow the servers", quiet(func(ctx context.Context) {
		entry.FollowServers(ctx, n.clock, n.identity, n.sources)
	}))
	start("serve logs and streams", n.server.Run)
	if n.healthAddress != "" {
		serve := func(ctx context.Context) error { return streaming.ServeHealth(ctx, n.healthAddress, n.pods.Healthy) }
		start("tell of the node's health", again.Keep(n.clock, "the answer about the node's health", serve))
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
	start("keep what is known of pods", n.recalled.Keeper.Run)
	if n.recalled.Memory != nil {
		start("keep immutable Secrets in memory", n.recalled.Memory.Run)
	}
	if n.services != nil {
		start("make services lead to pods", n.services.Run)
	}
	start("refresh volumes", n.volumes.Run)
	start("serve device plugins", again.Keep(n.clock, "the socket for device plugins", n.attached.Devices.Run))
	start("watch plugins", quiet(n.attached.Plugins.Run))
	start("take back devices of drivers that are away", quiet(n.attached.Claims.Run))
	start("tell of pods' devices", again.Keep(n.clock, "the socket that tells of pods' devices", n.resources.Run))
	start("give back volumes", quiet(func(ctx context.Context) {
		n.attached.Sweep(ctx, n.pods.Known(), n.pods.Remains)
	}))
	start("report pods", quiet(n.statuses.Run))
	start("watch the runtime", quiet(func(ctx context.Context) { n.runtime.Watch(ctx, n.pods) }))
	start("keep from pods what is reserved", again.Keep(n.clock, "the bound of all pods", n.bound.Run))
	start("remove images", quiet(n.keepers.Collector.Run))
	start("evict pods", quiet(n.keepers.Evictor.Run))
	start("watch static pods", quiet(n.folder.Run))
	start("mirror static pods", quiet(n.mirrors.Run))
	start("run pods", quiet(func(ctx context.Context) { n.pods.Wait(ctx) }))
	start("fetch images", quiet(n.keepers.Fetcher.Wait))
	start("rotate logs", quiet(n.runtime.RotateLogs))
	start("clear up", quiet(n.sweep))
	start("put files back", quiet(n.mend))
	start("watch the API", quiet(func(ctx context.Context) { n.sources.Run(ctx, handled, n.listed) }))
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// mend puts files back that somebody removed or changed, until ctx ends.
func (n *node) mend(ctx context.Context) {
	tell := func(path string, err error) {
		logger := klog.FromContext(ctx)
		if err != nil {
			logger.Error(err, "A file of the node is lost, and cannot be put back")
			n.events.Node(n.nodeName, "FileLost", err.Error())
			return
		}
		logger.Info("Somebody removed or changed a file of the node; it was put back", "path", path)
		n.events.Node(n.nodeName, "FilePutBack", path+" was removed or changed by somebody, and was put back as it was")
	}
	parts := []mend.Part{
		n.identity, n.attached.Devices, n.attached.Claims, n.keepers.Stock.Pinned, n.addresses, n.keeper, n.recalled.Keeper,
	}
	if n.recalled.Memory != nil {
		parts = append(parts, n.recalled.Memory)
	}
	if n.networkKeeper != nil {
		parts = append(parts, n.networkKeeper)
	}
	mend.Run(ctx, n.clock, tell, parts...)
}

// file reads a file of a volume of the pod.
func (n *node) file(pod *corev1.Pod, volume, path string) ([]byte, error) {
	return n.volumes.File(pod, volume, path)
}

// listed says that everything that the API had at first was seen.
func (n *node) listed() {
	n.pods.APIListed()
	n.mirrors.Poke()
}

// sweep removes, once, what pods left that are neither in the API nor in the runtime.
func (n *node) sweep(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-n.pods.Known():
	}
	n.attached.Devices.Sweep(n.pods.Remains)
	err := errors.Join(n.volumes.Sweep(ctx, n.pods.Remains), n.runtime.Sweep(ctx, n.pods.Remains))
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Could not clear up after pods of an earlier run")
	}
}
