package agent

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/attached"
	"github.com/everynode/everynode/internal/agent/clusternet"
	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/cri/resolvconf"
	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/housekeeping"
	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/nodestatus"
	"github.com/everynode/everynode/internal/agent/objects"
	"github.com/everynode/everynode/internal/agent/podresources"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/probes"
	"github.com/everynode/everynode/internal/agent/recall"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/reserve"
	"github.com/everynode/everynode/internal/agent/sources"
	"github.com/everynode/everynode/internal/agent/startorder/boot"
	"github.com/everynode/everynode/internal/agent/staticpods"
	"github.com/everynode/everynode/internal/agent/status"
	"github.com/everynode/everynode/internal/agent/volumes"
)

// bootFile is where, in the agent's folder, stands which start of the machine the agent saw last.
const bootFile = "boot-id"

// assemble makes the parts of a node. None of them runs yet.
func (a *Agent) assemble(ctx context.Context, services cri.Services, client kubernetes.Interface,
	identity *join.Identity) (*node, error) {
	n := &node{
		identity: identity, client: client, clock: a.clk, healthAddress: a.cfg.HealthAddress, nodeName: a.cfg.NodeName,
		addresses: a.addresses, sources: sources.New(client, a.cfg.NodeName),
		broadcaster: record.NewBroadcaster(record.WithContext(ctx)),
	}
	recorder := n.broadcaster.NewRecorder(scheme.Scheme,
		corev1.EventSource{Component: events.Source, Host: a.cfg.NodeName})
	n.attached = attached.New(attached.Config{
		NodeName: a.cfg.NodeName, KubeletDir: a.cfg.KubeletDir, DataDir: a.cfg.DataDir, Client: client, Clock: a.clk,
		Changed:  func() { n.reporter.Check() },
		KnowsCDI: func(ctx context.Context) (bool, error) { return n.runtime.KnowsCDI(ctx) },
	})
	var err error
	n.reporter, err = a.newReporter(n, services, recorder)
	if err != nil {
		return nil, err
	}
	n.bound = &reserve.Bound{
		Whole: n.reporter.Whole, Reserved: a.cfg.Reserved, Cgroups: a.cgroups, Clock: a.clk,
		Failed: func(reason, message string) { n.events.Node(a.cfg.NodeName, reason, message) },
	}
	n.scraped = a.newScraped(n)
	paths := clusternet.Config{
		Config: a.cfg, Sources: n.sources, Addresses: a.addresses, Clock: a.clk, Changed: n.reporter.Check,
	}
	n.recalled, err = recall.Open(ctx, recall.Config{
		DataDir: a.cfg.DataDir, Secrets: a.cfg.RememberSecrets, MemoryDir: a.cfg.MemoryDir, Client: client,
		Clock: a.clk, Tokens: func() []volumes.Token { return n.volumes.Tokens() },
	})
	if err != nil {
		return nil, err
	}
	var known *remember.Known
	n.keeper, known = paths.NewKeeper(klog.FromContext(ctx))
	if err := a.makeRuntime(n, services); err != nil {
		return nil, err
	}
	objs := objects.Reader{
		Cache: n.recalled.References, Client: client, ServiceLister: n.sources.ServiceLister(),
		ServicesRead: n.sources.Services.HasSynced,
		Known:        known, VolumeFile: n.file, NoSecrets: a.cfg.RememberSecrets == config.RememberNoSecrets,
		Allocatable: n.reporter.NodeAllocatable, NodeName: a.cfg.NodeName, NodeObject: n.sources.OwnNode,
	}
	n.events = events.Recorder{EventRecorder: recorder}
	n.attached.Report(ctx, func(reason, message string) { n.events.Node(a.cfg.NodeName, reason, message) })
	n.keepers = housekeeping.New(ctx, housekeeping.Config{
		Config: a.cfg, Images: services.Images, Programs: a.programs, Secrets: objs.Secret, Events: n.events, Clock: a.clk,
		Fetched: func(uid types.UID) { n.pods.ImagesFetched(uid) }, PullSecrets: objs.PullSecrets,
		Info: n.runtime.Info,
	})
	n.volumes = a.newVolumes(ctx, n, objs)
	n.statuses = status.New(status.APIWriter{Client: client})
	n.mirrors = staticpods.NewMirrorKeeper(staticpods.MirrorsConfig{
		Statuses: n.statuses, Seen: n.sources, Writer: staticpods.APIMirrors{Client: client}, Clock: a.clk,
	})
	podsConfig := a.podsConfig(n, objs)
	podsConfig.Rebooted, err = boot.Again(boot.Source, filepath.Join(a.cfg.DataDir, bootFile))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Pods start in no order, should the machine have started again")
	}
	n.pods = pods.New(ctx, podsConfig)
	n.mirrors.Running = n.pods
	n.pods.Recall(n.recalled.Pods.Pods)
	n.folder = a.newFolder(ctx, n)
	n.resources = podresources.New(podresources.Config{
		Dir: filepath.Join(a.cfg.KubeletDir, "pod-resources"), Pods: n.pods.ActivePods, Held: n.attached.Devices.Held,
		Healthy: n.attached.Devices.Healthy, Clock: a.clk,
	})
	n.keepers.Keep(n.runtime, n.volumes, n.pods, n.reporter)
	n.server, err = a.newServer(n, client, identity)
	if err != nil {
		return nil, err
	}
	if err := connectPods(ctx, n, paths, known); err != nil {
		return nil, err
	}
	return n, nil
}

// newVolumes makes what puts the volumes of pods on disk.
func (a *Agent) newVolumes(ctx context.Context, n *node, objs objects.Reader) *volumes.Manager {
	environment := objs.Environment(a.addresses.Texts)
	return volumes.New(volumes.Config{
		Image:   n.keepers.Volume,
		RootDir: filepath.Join(a.cfg.DataDir, "pods"), Objects: objs, Claims: objs, Drivers: n.attached.Drivers, Clock: a.clk,
		Tokens: n.recalled.Tokens(), TokenIssued: n.recalled.Keeper.NoteToken,
		Env: func(pod *corev1.Pod, c *corev1.Container) ([]env.Var, error) {
			return environment(ctx, pod, c, podIPsOf(pod))
		},
		OnRefreshError: func(pod *corev1.Pod, err error) {
			n.events.Pod(pod, corev1.EventTypeWarning, "FailedMount", err.Error())
		},
		ContentShown: func(uid types.UID) { n.pods.ContentShown(uid) },
	})
}

// connectPods makes what connects the node's pods with the rest of the cluster.
func connectPods(ctx context.Context, n *node, paths clusternet.Config, known *remember.Known) (err error) {
	n.network, n.networkKeeper, err = paths.NewNetwork(ctx, n.identity.RESTConfig())
	if err != nil {
		return err
	}
	n.names, err = paths.NewNames(known)
	if err != nil {
		return err
	}
	n.services, err = paths.NewServices(known)
	return err
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
		PodsRoot: filepath.Join(a.cfg.DataDir, "containers"), Cgroups: a.cgroups, Handler: n.recalled.Classes.Handler,
		DNS:            resolvconf.DNS{Servers: a.cfg.ClusterDNS, Domain: a.cfg.ClusterDomain, ResolvConf: a.cfg.ResolvConf},
		MemoryCapacity: capacity.Memory().Value(), MinOOMScore: lowest, SeccompDefault: a.cfg.SeccompDefault,
		MaxLogSize: a.cfg.LogMaxBytes, MaxLogFiles: a.cfg.LogMaxFiles,
	})
	return nil
}

// podsConfig says what the node's pods are run with.
func (a *Agent) podsConfig(n *node, objs objects.Reader) pods.Config {
	prober := probes.New(probes.Config{
		Exec: n.runtime.ExecSync, OnEvent: n.events.Container, OnProbe: n.probed, Version: a.cfg.Version, Clock: a.clk,
		OnChange: func(uid types.UID) { n.pods.ProbeChanged(uid) },
	})
	return pods.Config{
		Runtime: n.runtime, Devices: n.attached.Devices, Claims: n.attached.Claims, Volumes: n.volumes,
		Images:   n.keepers.Puller,
		Statuses: n.mirrors, Events: n.events, Env: objs.Environment(a.addresses.Texts), Clock: a.clk,
		Prober:  pods.Probes{Manager: prober, Stopped: func(uid types.UID) { n.scraped.Unprobed(string(uid)) }},
		HostIPs: a.addresses.Texts, Node: n.sources.OwnNode, References: objs.Cache, Book: n.recalled.Book,
		Fetcher: n.keepers.Fetcher,
		Sysctls: a.cfg.AllowedUnsafeSysctls, AppArmor: config.HasAppArmor("/"),
		Pressures:  func() []corev1.NodeConditionType { return n.keepers.Evictor.Pressures() },
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
		DevicesForgotten: n.attached.Devices.Forgot(), DevicesReset: n.attached.Devices.Remember,
		Healthy: func() error { return n.pods.Healthy() }, ClockSkew: n.identity.ClockSkew,
		DataDir: a.cfg.DataDir, CgroupRoot: a.cgroups.Root(), Clock: a.clk, Thresholds: a.cfg.Rules.Hard,
		Pressures: func() []corev1.NodeConditionType { return n.keepers.Evictor.Pressures() },
		Network:   clusternet.Condition(a.cfg.ForeignNetwork, func() *network.Network { return n.network }),
		Devices:   n.attached.Devices.Totals,
		ImageFS:   func(ctx context.Context) (string, error) { return cri.ImageFS(ctx, services.Images) },
		Runtime: func(ctx context.Context) (nodestatus.Runtime, error) {
			info, err := n.runtime.Info(ctx)
			return nodestatus.Runtime{Name: info.Name, Version: info.Version,
				StrictGroups: info.StrictGroups, Handlers: info.Handlers, Ready: nodestatus.Condition(info.Ready),
				NetworkReady: nodestatus.Condition(info.NetworkReady)}, err
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
