package server

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"
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
	"github.com/everynode/everynode/internal/controller/deployment"
	"github.com/everynode/everynode/internal/controller/disruption"
	"github.com/everynode/everynode/internal/controller/endpointslice"
	"github.com/everynode/everynode/internal/controller/garbagecollector"
	"github.com/everynode/everynode/internal/controller/horizontalpodautoscaler"
	"github.com/everynode/everynode/internal/controller/job"
	"github.com/everynode/everynode/internal/controller/namespace"
	"github.com/everynode/everynode/internal/controller/nodeipam"
	"github.com/everynode/everynode/internal/controller/nodelifecycle"
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
	"github.com/everynode/everynode/internal/scheduler"
	"github.com/everynode/everynode/internal/simulator"
	"github.com/everynode/everynode/internal/version"
)

// loop is a control loop, with the account that it runs under.
type loop struct {
	name, account string
	add           func(*actor) error
}

// addAll gives the manager every control loop.
func (c *control) addAll() error {
	for _, l := range append(c.clusterLoops(), c.workloadLoops()...) {
		a, err := c.actors.controller(l.account)
		if err == nil {
			err = l.add(a)
		}
		if err != nil {
			return fmt.Errorf("set up the control loop %q: %w", l.name, err)
		}
	}
	if err := c.addScheduler(); err != nil {
		return fmt.Errorf("set up the scheduler: %w", err)
	}
	return nil
}

// reserved is what no node's certificate may be for.
func (c *control) reserved() certificates.Control {
	names, ips := c.pki.ServingNames()
	services, _ := netip.ParsePrefix(c.service.String())
	return certificates.Control{Names: names, IPs: ips, Networks: []netip.Prefix{services, c.pods.Cluster}}
}

// clusterLoops keep nodes, namespaces, accounts, roles and certificates. Together
// with workloadLoops this is the list of the control loops.
func (c *control) clusterLoops() []loop {
	mgr := c.manager
	return []loop{
		{"certificates", "certificate-controller", func(a *actor) error {
			return certificates.Add(mgr, certificates.Config{
				Client: a.client, Signer: c.pki.Signer(), NodeSigner: c.pki.NodeSigner(), Control: c.reserved,
				Duration: c.options.SigningDuration,
				Restored: c.restored != "", Events: a.recorder("certificate-controller"),
			})
		}},
		{"cluster role aggregation", "clusterrole-aggregation-controller", func(a *actor) error {
			return clusterroleaggregation.Add(mgr, clusterroleaggregation.Config{Client: a.client})
		}},
		{"garbage collector", "generic-garbage-collector", c.addGarbageCollector},
		{"namespaces", "namespace-controller", func(a *actor) error {
			objects, err := a.metadata()
			if err != nil {
				return err
			}
			added, err := newAddedKinds(a, c.api.Kinds())
			if err != nil {
				return err
			}
			return namespace.Add(mgr, namespace.Config{Resources: namespaced(c.api.Kinds()), Added: added.namespaced,
				Client: a.client, Metadata: objects})
		}},
		{"node addresses", "node-controller", func(a *actor) error {
			return nodeipam.Add(mgr, nodeipam.Config{ClusterCIDR: c.pods.Cluster, NodeBits: c.pods.NodeBits,
				Writer: networkWriter{a.inside}, Events: a.recorder("node-controller")})
		}},
		{"node lifecycle", "node-controller", func(a *actor) error {
			return nodelifecycle.Add(mgr, nodelifecycle.Config{
				Writer: lifecycleWriter{nodelifecycle.NewWriter(a.client), a.inside}, Events: a.recorder("node-controller"),
			})
		}},
		{"policies' status", "validatingadmissionpolicy-status-controller", func(a *actor) error {
			return policystatus.Add(mgr, policystatus.Config{Client: a.client})
		}},
		{"resource quotas", "resourcequota-controller", c.addQuotas},
		{"root CA", "root-ca-cert-publisher", func(a *actor) error {
			return rootca.Add(mgr, rootca.Config{CA: c.pki.CAPEM, OnChange: c.pki.OnChange, Client: a.client})
		}},
		{"service accounts", "service-account-controller", func(a *actor) error {
			return serviceaccount.Add(mgr, serviceaccount.Config{Client: a.client})
		}},
		{"ServiceCIDRs", "service-cidrs-controller", func(a *actor) error {
			configured, err := netip.ParsePrefix(c.service.String())
			if err != nil {
				return fmt.Errorf("read the service CIDR: %w", err)
			}
			return servicecidr.Add(mgr, servicecidr.Config{Client: a.client, Configured: configured,
				Events: a.recorder(servicecidr.EventSource)})
		}},
		{"token cleaner", "token-cleaner", func(a *actor) error {
			return tokencleaner.Add(mgr, tokencleaner.Config{Client: a.client})
		}},
		{"simulated nodes", "node-simulator", c.addSimulator},
		{"backups", "backup-controller", c.addBackups},
	}
}

// workloadLoops keep pods and what groups them.
func (c *control) workloadLoops() []loop {
	mgr := c.manager
	return []loop{
		{"DaemonSets", "daemon-set-controller", c.addDaemonSets},
		{"Deployments", "deployment-controller", func(a *actor) error {
			return deployment.Add(mgr, deployment.Config{Client: a.client, Events: a.recorder(deployment.EventSource)})
		}},
		{"disruption budgets", "disruption-controller", func(a *actor) error {
			return disruption.Add(mgr, disruption.Config{Client: a.client, Events: a.recorder("controllermanager")})
		}},
		{"endpoints of services", "endpointslice-controller", c.addEndpoints},
		{"HorizontalPodAutoscalers", "horizontal-pod-autoscaler", c.addAutoscaler},
		{"CronJobs", "cronjob-controller", func(a *actor) error {
			return cronjob.Add(mgr, cronjob.Config{Client: a.client, Events: a.recorder(cronjob.EventSource),
				Registerer: c.metrics})
		}},
		{"Jobs", "job-controller", func(a *actor) error {
			return job.Add(mgr, job.Config{Client: a.client, Events: a.recorder(job.EventSource), Registerer: c.metrics})
		}},
		{"Jobs that are over", "ttl-after-finished-controller", func(a *actor) error {
			return ttlafterfinished.Add(mgr, ttlafterfinished.Config{Client: a.client})
		}},
		{"PersistentVolumes", "persistent-volume-binder", c.addVolumes},
		{"pod garbage", "pod-garbage-collector", func(a *actor) error {
			return podgc.Add(mgr, podgc.Config{Client: a.client})
		}},
		{"ReplicaSets and ReplicationControllers", "replicaset-controller", func(a *actor) error {
			old, err := c.actors.controller("replication-controller")
			if err != nil {
				return err
			}
			return replicaset.Add(mgr, replicaset.Config{
				ReplicaSets: replicaset.Account{Client: a.client, Events: a.recorder(replicaset.EventSource)},
				ReplicationControllers: replicaset.Account{Client: old.client,
					Events: old.recorder(replicaset.ReplicationEventSource)},
			})
		}},
		{"ResourceClaims", "resource-claim-controller", func(a *actor) error {
			return resourceclaim.Add(mgr, resourceclaim.Config{Client: a.client, Events: a.recorder(resourceclaim.EventSource)})
		}},
		{"StatefulSets", "statefulset-controller", func(a *actor) error {
			return statefulset.Add(mgr, statefulset.Config{Client: a.client, Events: a.recorder(statefulset.EventSource),
				Normalize: defaults.SetTemplate})
		}},
		{"taint eviction", "taint-eviction-controller", func(a *actor) error {
			return tainteviction.Add(mgr, tainteviction.Config{Client: a.client,
				Events: a.recorder("taint-eviction-controller")})
		}},
	}
}

// run gives the manager a loop that starts with it and ends with it.
func (c *control) run(f func(context.Context) error) error {
	return c.manager.Add(manager.RunnableFunc(f))
}

func (c *control) addDaemonSets(a *actor) error {
	if c.options.NoDaemonSetController {
		return nil
	}
	own, err := everynode.NewForConfig(a.config)
	if err != nil {
		return err
	}
	run, err := daemonSets(daemonset.Config{
		Rollouts: daemonset.NewRolloutWriter(own), Watches: c.watches, Content: copies.Access{Client: a.client},
		Informers: c.manager.GetCache(), Writer: daemonSetWriter{daemonset.NewWriter(a.client), a.inside},
		Recorder:          a.recorder(daemonset.EventSource),
		NormalizeTemplate: defaults.SetTemplate, Registerer: c.metrics,
	}, c.options.RecordDecisions)
	if err != nil {
		return err
	}
	return c.run(run)
}

// addEndpoints adds three controllers that share their facts, each with its account.
func (c *control) addEndpoints(a *actor) error {
	endpoints, err := c.actors.controller("endpoint-controller")
	if err != nil {
		return err
	}
	mirrors, err := c.actors.controller("endpointslicemirroring-controller")
	if err != nil {
		return err
	}
	return endpointslice.Add(c.manager, endpointslice.Config{
		Client: a.client, Endpoints: endpoints.client, Mirrors: mirrors.client,
		Events: a.recorder("endpoint-slice-controller"),
	})
}

func (c *control) addAutoscaler(a *actor) error {
	objects, err := dynamic.NewForConfig(a.config)
	if err != nil {
		return fmt.Errorf("make a client for scales: %w", err)
	}
	// What is scaled, or measured, may be of a kind that is added later.
	http, err := restclient.HTTPClientFor(a.config)
	if err != nil {
		return fmt.Errorf("make a client for kinds: %w", err)
	}
	kinds, err := apiutil.NewDynamicRESTMapper(a.config, http)
	if err != nil {
		return fmt.Errorf("find the kinds that can be scaled: %w", err)
	}
	return horizontalpodautoscaler.Add(c.manager, horizontalpodautoscaler.Config{
		Writer:  horizontalpodautoscaler.NewWriter(a.client, objects, kinds),
		Metrics: horizontalpodautoscaler.NewMetrics(a.client.Discovery().RESTClient(), kinds),
		Events:  a.recorder(horizontalpodautoscaler.EventSource),
	})
}

func (c *control) addGarbageCollector(a *actor) error {
	objects, err := a.metadata()
	if err != nil {
		return err
	}
	added, err := newAddedKinds(a, c.api.Kinds())
	if err != nil {
		return err
	}
	if err := c.run(added.run); err != nil {
		return err
	}
	gc, err := garbagecollector.New(garbagecollector.Config{
		Resources: collected(c.api.Kinds()), Added: added.told, Informers: c.manager.GetCache(),
		Metadata: collectorClient{objects, a.inside},
		Events:   a.recorder("garbage-collector-controller"),
	})
	if err != nil {
		return err
	}
	return c.run(gc.Run)
}

func (c *control) addQuotas(a *actor) error {
	objects, err := a.metadata()
	if err != nil {
		return err
	}
	added, err := newAddedKinds(a, c.api.Kinds())
	if err != nil {
		return err
	}
	config := resourcequota.Config{Client: a.client, Added: added.namespaced, Metadata: objects}
	for _, r := range collected(c.api.Kinds()) {
		if r.Namespaced {
			config.Resources = append(config.Resources, resourcequota.Resource{GVR: r.GVR, GVK: r.GVK, Prototype: r.Prototype})
		}
	}
	return resourcequota.Add(c.manager, config)
}

// addVolumes adds the controllers of volumes and claims. What keeps each of them from going has an account of its own.
func (c *control) addVolumes(a *actor) error {
	volumes, err := c.actors.controller("pv-protection-controller")
	if err != nil {
		return err
	}
	claims, err := c.actors.controller("pvc-protection-controller")
	if err != nil {
		return err
	}
	ephemeral, err := c.actors.controller("ephemeral-volume-controller")
	if err != nil {
		return err
	}
	return persistentvolume.Add(c.manager, persistentvolume.Config{
		Binder:           persistentvolume.Account{Client: a.client, Events: a.recorder(persistentvolume.EventSource)},
		VolumeProtection: persistentvolume.Account{Client: volumes.client},
		ClaimProtection:  persistentvolume.Account{Client: claims.client},
		Ephemeral:        persistentvolume.Account{Client: ephemeral.client, Events: ephemeral.recorder("ephemeral_volume")},
	})
}

func (c *control) addScheduler() error {
	a, err := c.actors.account(bootstrap.SchedulerAccount())
	if err != nil {
		return err
	}
	s, err := scheduler.New(scheduler.Config{
		Informers: c.manager.GetCache(), Writer: schedulerWriter{scheduler.NewWriter(a.client), a.inside},
		Events: schedulerEvents{scheduler.NewEventSink(a.client), a.inside}, Registerer: c.metrics,
	})
	if err != nil {
		return err
	}
	return c.run(s.Run)
}

// maxChattyNodes is the number of simulated nodes up to which they tell by events
// all that they do; thousands of them would bury everybody else's, and tell only
// of what goes wrong.
const maxChattyNodes = 100

func (c *control) addSimulator(a *actor) error {
	if c.options.SimulatedNodes == 0 {
		return nil
	}
	config := simulator.Config{
		Nodes: c.options.SimulatedNodes, Informers: c.manager.GetCache(),
		Writer: simulatorWriter{simulator.NewWriter(a.client), a.inside}, Version: version.Kubernetes(),
	}
	config.Events, config.OnlyWarnings = a.recorder("kubelet"), c.options.SimulatedNodes > maxChattyNodes
	config.Faults = c.options.Faults
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
