// Package loops is the list of the control loops, the scheduler among them, and runs them on one shared cache.
package loops

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/apiserver/bootstrap"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/controller/certificates"
	"github.com/everynode/everynode/internal/controller/clusterroleaggregation"
	"github.com/everynode/everynode/internal/controller/cronjob"
	"github.com/everynode/everynode/internal/controller/daemonset"
	"github.com/everynode/everynode/internal/controller/daemonset/copies"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
	"github.com/everynode/everynode/internal/controller/deployment"
	"github.com/everynode/everynode/internal/controller/disruption"
	"github.com/everynode/everynode/internal/controller/endpointslice"
	"github.com/everynode/everynode/internal/controller/garbagecollector"
	"github.com/everynode/everynode/internal/controller/horizontalpodautoscaler"
	"github.com/everynode/everynode/internal/controller/job"
	"github.com/everynode/everynode/internal/controller/namespace"
	"github.com/everynode/everynode/internal/controller/nodeipam"
	"github.com/everynode/everynode/internal/controller/nodelifecycle"
	"github.com/everynode/everynode/internal/controller/nodestartup"
	"github.com/everynode/everynode/internal/controller/nodestartup/room"
	"github.com/everynode/everynode/internal/controller/persistentvolume"
	"github.com/everynode/everynode/internal/controller/podgc"
	"github.com/everynode/everynode/internal/controller/policystatus"
	"github.com/everynode/everynode/internal/controller/replicaset"
	"github.com/everynode/everynode/internal/controller/resourceclaim"
	"github.com/everynode/everynode/internal/controller/resourcequota"
	"github.com/everynode/everynode/internal/controller/rootca"
	"github.com/everynode/everynode/internal/controller/serviceaccount"
	"github.com/everynode/everynode/internal/controller/servicecidr"
	"github.com/everynode/everynode/internal/controller/statefulset"
	"github.com/everynode/everynode/internal/controller/tainteviction"
	"github.com/everynode/everynode/internal/controller/tokencleaner"
	"github.com/everynode/everynode/internal/controller/ttlafterfinished"
	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/loop/podwriter"
	"github.com/everynode/everynode/internal/scheduler"
	"github.com/everynode/everynode/internal/server/actors"
	"github.com/everynode/everynode/internal/server/loops/elsewhere"
	"github.com/everynode/everynode/internal/server/placing"
	"github.com/everynode/everynode/internal/simulator"
	"github.com/everynode/everynode/internal/version"
)

// loop is a control loop, with the account that it runs under.
type loop struct {
	name, account string
	add           func(*actors.Actor) error
}

// addAll gives the manager every control loop.
func (c *control) addAll() error {
	if err := c.addScheduler(); err != nil {
		return fmt.Errorf("set up the scheduler: %w", err)
	}
	for _, l := range append(c.clusterLoops(), c.workloadLoops()...) {
		a, err := c.actors.Controller(l.account)
		if err == nil {
			err = l.add(a)
		}
		if err != nil {
			return fmt.Errorf("set up the control loop %q: %w", l.name, err)
		}
	}
	return nil
}

// reserved is what no node's certificate may be for.
func (c *control) reserved() certificates.Control {
	names, ips := c.PKI.ServingNames()
	services, _ := netip.ParsePrefix(c.Service.String())
	return certificates.Control{Names: names, IPs: ips, Networks: []netip.Prefix{services, c.Pods.Cluster}}
}

// clusterLoops keep nodes, namespaces, accounts, roles and certificates. Together
// with workloadLoops this is the list of the control loops.
func (c *control) clusterLoops() []loop {
	mgr := c.manager
	return []loop{
		{"certificates", "certificate-controller", func(a *actors.Actor) error {
			return certificates.Add(mgr, certificates.Config{
				Client: a.Client, Signer: c.PKI.Signer(), NodeSigner: c.PKI.NodeSigner(), Control: c.reserved,
				Duration: c.SigningDuration,
				Restored: c.Restored, Events: a.Recorder("certificate-controller"),
			})
		}},
		{"cluster role aggregation", "clusterrole-aggregation-controller", func(a *actors.Actor) error {
			return clusterroleaggregation.Add(mgr, clusterroleaggregation.Config{Client: a.Client})
		}},
		{"garbage collector", "generic-garbage-collector", c.addGarbageCollector},
		{"namespaces", "namespace-controller", func(a *actors.Actor) error {
			objects, err := a.Metadata()
			if err != nil {
				return err
			}
			added, err := newAddedKinds(a, c.API.Kinds())
			if err != nil {
				return err
			}
			return namespace.Add(mgr, namespace.Config{Resources: namespaced(c.API.Kinds()), Added: added.namespaced,
				Client: a.Client, Metadata: objects})
		}},
		{"node addresses", "node-controller", func(a *actors.Actor) error {
			return nodeipam.Add(mgr, nodeipam.Config{ClusterCIDR: c.Pods.Cluster, NodeBits: c.Pods.NodeBits,
				Writer: a.Inside.PodNetworks(), Events: a.Recorder("node-controller")})
		}},
		{"node lifecycle", "node-controller", func(a *actors.Actor) error {
			return nodelifecycle.Add(mgr, nodelifecycle.Config{
				Writer: a.Inside.NodeLifecycle(nodelifecycle.NewWriter(a.Client)),
				Events: a.Recorder("node-controller"),
			})
		}},
		{"node startup", "node-startup-controller", c.addNodeStartup},
		{"policies' status", "validatingadmissionpolicy-status-controller", func(a *actors.Actor) error {
			return policystatus.Add(mgr, policystatus.Config{Client: a.Client})
		}},
		{"resource quotas", "resourcequota-controller", c.addQuotas},
		{"root CA", "root-ca-cert-publisher", func(a *actors.Actor) error {
			return rootca.Add(mgr, rootca.Config{CA: c.PKI.CAPEM, OnChange: c.PKI.OnChange, Client: a.Client})
		}},
		{"service accounts", "service-account-controller", func(a *actors.Actor) error {
			return serviceaccount.Add(mgr, serviceaccount.Config{Client: a.Client})
		}},
		{"ServiceCIDRs", "service-cidrs-controller", func(a *actors.Actor) error {
			configured, err := netip.ParsePrefix(c.Service.String())
			if err != nil {
				return fmt.Errorf("read the service CIDR: %w", err)
			}
			return servicecidr.Add(mgr, servicecidr.Config{Client: a.Client, Configured: configured,
				Events: a.Recorder(servicecidr.EventSource)})
		}},
		{"token cleaner", "token-cleaner", func(a *actors.Actor) error {
			return tokencleaner.Add(mgr, tokencleaner.Config{Client: a.Client})
		}},
		{"simulated nodes", "node-simulator", c.addSimulator},
		{"backups", backupAccount, c.addBackups},
	}
}

// workloadLoops keep pods and what groups them.
func (c *control) workloadLoops() []loop {
	mgr := c.manager
	return []loop{
		{"DaemonSets", "daemon-set-controller", c.addDaemonSets},
		{"Deployments", "deployment-controller", func(a *actors.Actor) error {
			return deployment.Add(mgr, deployment.Config{Client: a.Client, Events: a.Recorder(deployment.EventSource)})
		}},
		{"disruption budgets", "disruption-controller", func(a *actors.Actor) error {
			return disruption.Add(mgr, disruption.Config{Client: a.Client, Events: a.Recorder("controllermanager")})
		}},
		{"endpoints of services", "endpointslice-controller", c.addEndpoints},
		{"HorizontalPodAutoscalers", "horizontal-pod-autoscaler", c.addAutoscaler},
		{"CronJobs", "cronjob-controller", func(a *actors.Actor) error {
			return cronjob.Add(mgr, cronjob.Config{Client: a.Client, Events: a.Recorder(cronjob.EventSource),
				Registerer: c.Metrics})
		}},
		{"Jobs", "job-controller", func(a *actors.Actor) error {
			return job.Add(mgr, job.Config{Client: a.Client, Events: a.Recorder(job.EventSource),
				Registerer: c.Metrics})
		}},
		{"Jobs that are over", "ttl-after-finished-controller", func(a *actors.Actor) error {
			return ttlafterfinished.Add(mgr, ttlafterfinished.Config{Client: a.Client})
		}},
		{"PersistentVolumes", "persistent-volume-binder", c.addVolumes},
		{"pod garbage", "pod-garbage-collector", func(a *actors.Actor) error {
			return podgc.Add(mgr, podgc.Config{Client: a.Client})
		}},
		{"ReplicaSets and ReplicationControllers", "replicaset-controller", func(a *actors.Actor) error {
			old, err := c.actors.Controller("replication-controller")
			if err != nil {
				return err
			}
			return replicaset.Add(mgr, replicaset.Config{
				ReplicaSets: replicaset.Account{Client: a.Client, Events: a.Recorder(replicaset.EventSource)},
				ReplicationControllers: replicaset.Account{Client: old.Client,
					Events: old.Recorder(replicaset.ReplicationEventSource)},
			})
		}},
		{"ResourceClaims", "resource-claim-controller", func(a *actors.Actor) error {
			return resourceclaim.Add(mgr, resourceclaim.Config{Client: a.Client,
				Events: a.Recorder(resourceclaim.EventSource)})
		}},
		{"StatefulSets", "statefulset-controller", func(a *actors.Actor) error {
			return statefulset.Add(mgr, statefulset.Config{Client: a.Client,
				Events:    a.Recorder(statefulset.EventSource),
				Normalize: defaults.SetTemplate})
		}},
		{"taint eviction", "taint-eviction-controller", func(a *actors.Actor) error {
			return tainteviction.Add(mgr, tainteviction.Config{Client: a.Client,
				Events: a.Recorder("taint-eviction-controller")})
		}},
	}
}

// addNodeStartup adds the loop that opens nodes that start.
func (c *control) addNodeStartup(a *actors.Actor) error {
	own, err := everynode.NewForConfig(a.Config)
	if err != nil {
		return err
	}
	cfg := nodestartup.Config{Startups: own.NodeStartups(), Gates: a.Inside.Gates(), Placements: c.placements,
		Events: a.Recorder(nodestartup.EventSource), Registerer: c.Metrics}
	if c.NoDaemonSetController {
		cfg.Placements = elsewhere.New(c.manager.GetCache(), clock.RealClock{})
	}
	return nodestartup.Add(c.manager, cfg)
}

// backupAccount is the account, and the name in events, of what makes backups.
const backupAccount = "backup-controller"

// addBackups adds the loop that makes backups.
func (c *control) addBackups(a *actors.Actor) error {
	if c.Backups == nil {
		return nil
	}
	run, err := c.Backups(a.Client, a.Recorder(backupAccount), c.Metrics)
	if err != nil {
		return err
	}
	return c.run(run)
}

// run gives the manager a loop that starts with it and ends with it.
func (c *control) run(f func(context.Context) error) error {
	return c.manager.Add(manager.RunnableFunc(f))
}

func (c *control) addDaemonSets(a *actors.Actor) error {
	if c.NoDaemonSetController {
		return nil
	}
	own, err := everynode.NewForConfig(a.Config)
	if err != nil {
		return err
	}
	writer, err := c.daemonWriter(a)
	if err != nil {
		return err
	}
	run, err := DaemonSets(daemonset.Config{
		Rollouts: executor.NewRolloutWriter(own), Watches: c.watches,
		Content: copies.Access{Client: a.Client}, LiveContent: true, Startups: true, Placements: c.placements,
		Variants: executor.NewVariantWriter(own), Trials: podwriter.Writer{Client: a.Client},
		Informers: c.manager.GetCache(), Writer: writer,
		Recorder:          a.Recorder(daemonset.EventSource),
		NormalizeTemplate: defaults.SetTemplate, Registerer: c.Metrics,
	}, c.RecordDecisions)
	if err != nil {
		return err
	}
	return c.run(run)
}

// daemonWriter is the DaemonSet controller's writer. It asks the scheduler, which works where this loop works.
func (c *control) daemonWriter(a *actors.Actor) (executor.Writer, error) {
	inside := a.Inside.DaemonSets(executor.NewWriter(a.Client))
	if c.BindDaemonsLater {
		return inside, nil
	}
	return placing.New(inside, placing.Config{
		Scheduler: scheduler.Name, Admit: c.schedulerActor.Inside.AdmittedBinding, Watched: c.API.BindingsWatched,
		Metrics: c.Metrics,
		Reserve: func(ctx context.Context, p *corev1.Pod) (placing.Room, string) {
			room, why := c.scheduler.Reserve(ctx, p)
			if room == nil {
				return nil, string(why)
			}
			return room, ""
		},
	})
}

// addEndpoints adds three controllers that share their facts, each with its account.
func (c *control) addEndpoints(a *actors.Actor) error {
	endpoints, err := c.actors.Controller("endpoint-controller")
	if err != nil {
		return err
	}
	mirrors, err := c.actors.Controller("endpointslicemirroring-controller")
	if err != nil {
		return err
	}
	return endpointslice.Add(c.manager, endpointslice.Config{
		Client: a.Client, Endpoints: endpoints.Client, Mirrors: mirrors.Client,
		Events: a.Recorder("endpoint-slice-controller"),
	})
}

func (c *control) addAutoscaler(a *actors.Actor) error {
	objects, err := dynamic.NewForConfig(a.Config)
	if err != nil {
		return fmt.Errorf("make a client for scales: %w", err)
	}
	// What is scaled, or measured, may be of a kind that is added later.
	http, err := restclient.HTTPClientFor(a.Config)
	if err != nil {
		return fmt.Errorf("make a client for kinds: %w", err)
	}
	kinds, err := apiutil.NewDynamicRESTMapper(a.Config, http)
	if err != nil {
		return fmt.Errorf("find the kinds that can be scaled: %w", err)
	}
	return horizontalpodautoscaler.Add(c.manager, horizontalpodautoscaler.Config{
		Writer:  horizontalpodautoscaler.NewWriter(a.Client, objects, kinds),
		Metrics: horizontalpodautoscaler.NewMetrics(a.Client.Discovery().RESTClient(), kinds),
		Events:  a.Recorder(horizontalpodautoscaler.EventSource), Registerer: c.Metrics,
	})
}

func (c *control) addGarbageCollector(a *actors.Actor) error {
	objects, err := a.Metadata()
	if err != nil {
		return err
	}
	added, err := newAddedKinds(a, c.API.Kinds())
	if err != nil {
		return err
	}
	if err := c.run(added.run); err != nil {
		return err
	}
	gc, err := garbagecollector.New(garbagecollector.Config{
		Resources: collected(c.API.Kinds()), Added: added.told, Informers: c.manager.GetCache(),
		Metadata: a.Inside.Collector(objects),
		Events:   a.Recorder("garbage-collector-controller"),
	})
	if err != nil {
		return err
	}
	return c.run(gc.Run)
}

func (c *control) addQuotas(a *actors.Actor) error {
	objects, err := a.Metadata()
	if err != nil {
		return err
	}
	added, err := newAddedKinds(a, c.API.Kinds())
	if err != nil {
		return err
	}
	config := resourcequota.Config{Client: a.Client, Added: added.namespaced, Metadata: objects}
	for _, r := range collected(c.API.Kinds()) {
		if r.Namespaced {
			config.Resources = append(config.Resources,
				resourcequota.Resource{GVR: r.GVR, GVK: r.GVK, Prototype: r.Prototype})
		}
	}
	return resourcequota.Add(c.manager, config)
}

// addVolumes adds the controllers of volumes and claims. What keeps each of them from going has an account of its own.
func (c *control) addVolumes(a *actors.Actor) error {
	volumes, err := c.actors.Controller("pv-protection-controller")
	if err != nil {
		return err
	}
	claims, err := c.actors.Controller("pvc-protection-controller")
	if err != nil {
		return err
	}
	ephemeral, err := c.actors.Controller("ephemeral-volume-controller")
	if err != nil {
		return err
	}
	return persistentvolume.Add(c.manager, persistentvolume.Config{
		Binder:           persistentvolume.Account{Client: a.Client, Events: a.Recorder(persistentvolume.EventSource)},
		VolumeProtection: persistentvolume.Account{Client: volumes.Client},
		ClaimProtection:  persistentvolume.Account{Client: claims.Client},
		Ephemeral: persistentvolume.Account{Client: ephemeral.Client,
			Events: ephemeral.Recorder("ephemeral_volume")},
	})
}

func (c *control) addScheduler() error {
	a, err := c.actors.Account(bootstrap.SchedulerAccount())
	if err != nil {
		return err
	}
	keeper := room.New(c.manager.GetCache())
	err = keeper.Follow(context.Background(), c.manager.GetCache())
	if err != nil {
		return err
	}
	s, err := scheduler.New(scheduler.Config{
		Informers: c.manager.GetCache(), Writer: a.Inside.Scheduler(scheduler.NewWriter(a.Client)),
		Events: a.Inside.SchedulerEvents(scheduler.NewEventSink(a.Client)), Registerer: c.Metrics,
		ToCome: daemonsToCome(keeper),
	})
	if err != nil {
		return err
	}
	c.scheduler, c.schedulerActor = s, a
	return c.run(s.Run)
}

// daemonsToCome has the scheduler keep room for them. What cannot be read is no reason to place nothing.
func daemonsToCome(keeper *room.Keeper) func(*fit.Node) []*fit.Pod {
	return func(n *fit.Node) []*fit.Pod {
		daemons, err := keeper.ToCome(context.Background(), n)
		if err != nil {
			klog.Background().Error(err, "A node keeps no room for daemons that are still to come", "node", n.Name)
		}
		return daemons
	}
}

// maxChattyNodes is the number of simulated nodes up to which they tell by events
// all that they do; thousands of them would bury everybody else's, and tell only
// of what goes wrong.
const maxChattyNodes = 100

func (c *control) addSimulator(a *actors.Actor) error {
	if c.SimulatedNodes == 0 {
		return nil
	}
	config := simulator.Config{
		Nodes: c.SimulatedNodes, Informers: c.manager.GetCache(),
		Writer: a.Inside.Simulator(simulator.NewWriter(a.Client)), Version: version.Kubernetes(),
	}
	config.Events, config.OnlyWarnings = a.Recorder("kubelet"), c.SimulatedNodes > maxChattyNodes
	config.Faults = c.Faults
	sim, err := simulator.New(config)
	if err != nil {
		return err
	}
	return c.run(sim.Run)
}

// namespaced lists what a namespace can hold.
func namespaced(kinds []resource.Definition) (out []schema.GroupVersionResource) {
	for _, k := range kinds {
		if !k.ClusterScoped {
			out = append(out, k.GroupVersionResource())
		}
	}
	return out
}
