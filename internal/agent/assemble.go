package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/cri/resolvconf"
	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/nodestatus"
	"github.com/everynode/everynode/internal/agent/objects"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/probes"
	"github.com/everynode/everynode/internal/agent/sources"
	"github.com/everynode/everynode/internal/agent/staticpods"
	"github.com/everynode/everynode/internal/agent/status"
	"github.com/everynode/everynode/internal/agent/volumes"
)

// assemble makes the parts of a node. None of them runs yet.
func (a *Agent) assemble(ctx context.Context, services cri.Services, client kubernetes.Interface,
	identity *join.Identity) (*node, error) {
	n := &node{
		identity: identity, client: client, clock: a.clk, healthAddress: a.cfg.HealthAddress, nodeName: a.cfg.NodeName,
		addresses: a.addresses, reserved: a.cfg.Reserved, cgroups: a.cgroups, sources: sources.New(client, a.cfg.NodeName),
		broadcaster: record.NewBroadcaster(record.WithContext(ctx)),
	}
	recorder := n.broadcaster.NewRecorder(scheme.Scheme,
		corev1.EventSource{Component: events.Source, Host: a.cfg.NodeName})
	n.devices, n.drivers, n.claims = a.newDevices(n), a.newDrivers(n), a.newClaims(n)
	n.plugins = a.newPlugins(n)
	var err error
	n.reporter, err = a.newReporter(n, services, recorder)
	if err != nil {
		return nil, err
	}
	n.scraped = a.newScraped(n)
	recalled, known, err := a.recall(ctx, n)
	if err != nil {
		return nil, err
	}
	if err := a.makeRuntime(n, services); err != nil {
		return nil, err
	}
	objs := objects.Reader{
		Cache: n.references, Client: client, ServiceLister: n.sources.ServiceLister(),
		ServicesRead: n.sources.Services.HasSynced,
		Known:        known, VolumeFile: n.file, NoSecrets: a.cfg.RememberSecrets == config.RememberNoSecrets,
		Allocatable: n.reporter.NodeAllocatable, NodeName: a.cfg.NodeName, NodeObject: n.sources.OwnNode,
	}
	n.events = events.Recorder{EventRecorder: recorder}
	a.reportDevices(ctx, n, n.events)
	environment := newEnvironment(objs, a.addresses.Texts)
	puller := a.newPuller(n, services, objs, n.events)
	n.volumes = volumes.New(volumes.Config{
		Image:   n.imageVolume(puller),
		RootDir: filepath.Join(a.cfg.DataDir, "pods"), Objects: objs, Claims: objs, Drivers: n.drivers, Clock: a.clk,
		Tokens: tokensOf(recalled), TokenIssued: n.podKeeper.NoteToken,
		Env: func(pod *corev1.Pod, c *corev1.Container) ([]env.Var, error) {
			return environment(ctx, pod, c, podIPsOf(pod))
		},
		OnRefreshError: func(pod *corev1.Pod, err error) {
			n.events.Pod(pod, corev1.EventTypeWarning, "FailedMount", err.Error())
		},
		ContentShown: func(uid types.UID) { n.pods.ContentShown(uid) },
	})
	n.statuses = status.New(status.APIWriter{Client: client})
	n.mirrors = staticpods.NewMirrorKeeper(staticpods.MirrorsConfig{
		Statuses: n.statuses, Seen: n.sources, Writer: staticpods.APIMirrors{Client: client}, Clock: a.clk,
	})
	n.fetcher = a.newFetcher(ctx, n, puller)
	n.pods = pods.New(ctx, a.podsConfig(n, objs, puller))
	n.mirrors.Running = n.pods
	n.pods.Recall(recalled.Pods)
	n.folder = a.newFolder(ctx, n)
	n.resources = a.newPodResources(n)
	a.makeRoomKeepers(n, services)
	n.server, err = a.newServer(n, client, identity)
	if err != nil {
		return nil, err
	}
	n.network, err = a.newNetwork(ctx, n, identity)
	if err != nil {
		return nil, err
	}
	n.names, err = a.newNames(n.sources, known)
	if err != nil {
		return nil, err
	}
	n.services, err = a.newServices(n.sources, known)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// makeRuntime makes what runs containers.
func (a *Agent) makeRuntime(n *node, services cri.Services) error {
	lowest, err := cri.LowestOOMScore()
	if err != nil {
		return err
	}
	capacity := n.reporter.NodeAllocatable()
	noteAddresses := network.OwnLeases().Note
	if a.cfg.ForeignNetwork {
		noteAddresses = nil
	}
	n.runtime = cri.New(cri.Config{
		Relisted: n.scraped.Relisted, NoteAddresses: noteAddresses,
		Strays: func(pod *corev1.Pod, killed int) {
			n.events.Pod(pod, corev1.EventTypeWarning, "StrayProcessesKilled",
				fmt.Sprintf("killed %d processes of this pod that the container runtime had forgotten", killed))
		},
		Service: services.Runtime, Lister: services.Lists,
		LogRoot: filepath.Join(a.cfg.LogDir, "pods"), LinkRoot: filepath.Join(a.cfg.LogDir, "containers"),
		PodsRoot: filepath.Join(a.cfg.DataDir, "containers"), Cgroups: a.cgroups, Handler: n.classes.Handler,
		DNS:            resolvconf.DNS{Servers: a.cfg.ClusterDNS, Domain: a.cfg.ClusterDomain, ResolvConf: a.cfg.ResolvConf},
		MemoryCapacity: capacity.Memory().Value(), MinOOMScore: lowest, SeccompDefault: a.cfg.SeccompDefault,
		MaxLogSize: a.cfg.LogMaxBytes, MaxLogFiles: a.cfg.LogMaxFiles,
	})
	return nil
}

// newEnvironment returns what computes the variables of containers. Static pods start before anything is known of
// Services.
func newEnvironment(objs objects.Reader, hostIPs func() []string) pods.Environment {
	return func(ctx context.Context, pod *corev1.Pod, c *corev1.Container, podIPs []string) ([]env.Var, error) {
		if !objs.ServicesKnown() && !staticpods.IsUID(pod.UID) {
			return nil, errors.New("services have not yet been read at least once, cannot construct envvars")
		}
		return env.Build(ctx, pod, c, podIPs, hostIPs(), objs)
	}
}

// podsConfig says what the node's pods are run with.
func (a *Agent) podsConfig(n *node, objs objects.Reader, puller pods.Images) pods.Config {
	prober := probes.New(probes.Config{
		Exec: n.runtime.ExecSync, OnEvent: n.events.Container, OnProbe: n.probed, Version: a.cfg.Version, Clock: a.clk,
		OnChange: func(uid types.UID) { n.pods.ProbeChanged(uid) },
	})
	return pods.Config{
		Runtime: n.runtime, Devices: n.devices, Claims: n.claims, Volumes: n.volumes, Images: puller,
		Statuses: n.mirrors, Events: n.events, Env: newEnvironment(objs, a.addresses.Texts), Clock: a.clk,
		Prober:  pods.Probes{Manager: prober, Stopped: func(uid types.UID) { n.scraped.Unprobed(string(uid)) }},
		HostIPs: a.addresses.Texts, Node: n.sources.OwnNode, References: objs.Cache, Book: n.book, Fetcher: n.fetcher,
		Sysctls: a.cfg.AllowedUnsafeSysctls, AppArmor: config.HasAppArmor("/"),
		Pressures:  func() []corev1.NodeConditionType { return n.evictor.Pressures() },
		StaticPods: true, StaticsChanged: n.mirrors.Poke, MirrorSeen: n.mirrors.MirrorSeen,
	}
}

// newFolder reads the static pods.
func (a *Agent) newFolder(ctx context.Context, n *node) *staticpods.Folder {
	return staticpods.NewFolder(staticpods.Config{
		Path: a.cfg.ManifestPath, NodeName: a.cfg.NodeName, Clock: a.clk, OnPods: n.pods.SetStatics,
		OnProblem: func(path string, err error) {
			klog.FromContext(ctx).Error(err, "A static pod's manifest cannot be used", "path", path)
			n.events.Node(a.cfg.NodeName, "InvalidStaticPod", path+": "+err.Error())
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

func (a *Agent) newReporter(n *node, services cri.Services, recorder record.EventRecorder) (*nodestatus.Reporter,
	error) {
	return nodestatus.New(nodestatus.Config{
		NodeName: a.cfg.NodeName, NodeIPs: a.addresses.List, Labels: a.cfg.Labels, Taints: a.cfg.Taints,
		LiveContent: true, FetchesImages: true, Client: n.client, Recorder: recorder, Node: n.sources.OwnNode,
		KubeletVersion: a.cfg.Version, KubeletPort: a.cfg.Port,
		MaxPods: a.cfg.MaxPods, Reserved: a.cfg.Reserved,
		Restored: n.identity.Restored, Making: n.identity.Making, Settled: n.identity.Settle,
		DevicesForgotten: n.devices.Forgot(), DevicesReset: n.devices.Remember,
		Healthy: func() error { return n.pods.Healthy() }, ClockSkew: n.identity.ClockSkew,
		DataDir: a.cfg.DataDir, CgroupRoot: a.cgroups.Root(), Clock: a.clk, Thresholds: a.cfg.Rules.Hard,
		Pressures: func() []corev1.NodeConditionType { return n.evictor.Pressures() }, Network: a.networkCondition(n),
		Devices: n.devices.Totals,
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
