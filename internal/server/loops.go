package server

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/controller/certificates"
	"github.com/everynode/everynode/internal/controller/clusterroleaggregation"
	"github.com/everynode/everynode/internal/controller/daemonset"
	"github.com/everynode/everynode/internal/controller/deployment"
	"github.com/everynode/everynode/internal/controller/disruption"
	"github.com/everynode/everynode/internal/controller/endpointslice"
	"github.com/everynode/everynode/internal/controller/garbagecollector"
	"github.com/everynode/everynode/internal/controller/namespace"
	"github.com/everynode/everynode/internal/controller/nodeipam"
	"github.com/everynode/everynode/internal/controller/nodelifecycle"
	"github.com/everynode/everynode/internal/controller/podgc"
	"github.com/everynode/everynode/internal/controller/replicaset"
	"github.com/everynode/everynode/internal/controller/rootca"
	"github.com/everynode/everynode/internal/controller/serviceaccount"
	"github.com/everynode/everynode/internal/controller/tainteviction"
	"github.com/everynode/everynode/internal/controller/tokencleaner"
	"github.com/everynode/everynode/internal/scheduler"
	"github.com/everynode/everynode/internal/simulator"
	"github.com/everynode/everynode/internal/version"
)

// addAll gives the manager every control loop. This is the list of them.
func (c *control) addAll() error {
	mgr, client := c.manager, c.client
	nodeEvents := c.recorder("node-controller")
	for _, loop := range []struct {
		name string
		add  func() error
	}{
		{"certificates", func() error {
			return certificates.Add(mgr, certificates.Config{
				Client: client, Signer: c.pki.Signer(), NodeSigner: c.pki.NodeSigner(), Control: c.reserved, Duration: c.options.SigningDuration,
			})
		}},
		{"cluster role aggregation", func() error {
			return clusterroleaggregation.Add(mgr, clusterroleaggregation.Config{Client: client})
		}},
		{"DaemonSets", c.addDaemonSets},
		{"Deployments", func() error {
			return deployment.Add(mgr, deployment.Config{Client: client, Events: c.recorder(deployment.EventSource)})
		}},
		{"disruption budgets", func() error {
			return disruption.Add(mgr, disruption.Config{Client: client, Events: c.recorder("controllermanager")})
		}},
		{"endpoints of services", func() error {
			return endpointslice.Add(mgr, endpointslice.Config{Client: client, Events: c.recorder("endpoint-slice-controller")})
		}},
		{"garbage collector", c.addGarbageCollector},
		{"namespaces", func() error {
			return namespace.Add(mgr, namespace.Config{Resources: namespaced(c.api.Kinds()), Client: client, Metadata: c.objects})
		}},
		{"node addresses", func() error {
			return nodeipam.Add(mgr, nodeipam.Config{ClusterCIDR: c.cluster, Writer: networkWriter{c.inside}, Events: nodeEvents})
		}},
		{"node lifecycle", func() error {
			return nodelifecycle.Add(mgr, nodelifecycle.Config{Writer: lifecycleWriter{nodelifecycle.NewWriter(client), c.inside}, Events: nodeEvents})
		}},
		{"pod garbage", func() error { return podgc.Add(mgr, podgc.Config{Client: client}) }},
		{"ReplicaSets", func() error {
			return replicaset.Add(mgr, replicaset.Config{Client: client, Events: c.recorder(replicaset.EventSource)})
		}},
		{"root CA", func() error { return rootca.Add(mgr, rootca.Config{CA: c.pki.CAPEM(), Client: client}) }},
		{"service accounts", func() error { return serviceaccount.Add(mgr, serviceaccount.Config{Client: client}) }},
		{"taint eviction", func() error {
			return tainteviction.Add(mgr, tainteviction.Config{Client: client, Events: c.recorder("taint-eviction-controller")})
		}},
		{"token cleaner", func() error { return tokencleaner.Add(mgr, tokencleaner.Config{Client: client}) }},
		{"scheduler", c.addScheduler},
		{"simulated nodes", c.addSimulator},
	} {
		if err := loop.add(); err != nil {
			return fmt.Errorf("set up the control loop %q: %w", loop.name, err)
		}
	}
	return nil
}

// reserved is what no node's certificate may be for.
func (c *control) reserved() certificates.Control {
	names, ips := c.pki.ServingNames()
	services, _ := netip.ParsePrefix(c.service.String())
	return certificates.Control{Names: names, IPs: ips, Networks: []netip.Prefix{services, c.cluster}}
}

// run gives the manager a loop that starts with it and ends with it.
func (c *control) run(f func(context.Context) error) error {
	return c.manager.Add(manager.RunnableFunc(f))
}

func (c *control) addDaemonSets() error {
	if c.options.NoDaemonSetController {
		return nil
	}
	run, err := daemonSets(daemonset.Config{
		Informers: c.manager.GetCache(), Writer: daemonSetWriter{daemonset.NewWriter(c.client), c.inside}, Recorder: c.recorder(daemonset.EventSource),
		NormalizeTemplate: podspec.SetTemplateDefaults, Registerer: c.options.Metrics,
	}, c.options.RecordDecisions)
	if err != nil {
		return err
	}
	return c.run(run)
}

func (c *control) addGarbageCollector() error {
	gc, err := garbagecollector.New(garbagecollector.Config{
		Resources: collected(c.api.Kinds()), Informers: c.manager.GetCache(), Metadata: collectorClient{c.objects, c.inside},
		Events: c.recorder("garbage-collector-controller"),
	})
	if err != nil {
		return err
	}
	return c.run(gc.Run)
}

func (c *control) addScheduler() error {
	s, err := scheduler.New(scheduler.Config{
		Informers: c.manager.GetCache(), Writer: schedulerWriter{scheduler.NewWriter(c.client), c.inside},
		Events: schedulerEvents{scheduler.NewEventSink(c.client), c.inside}, Registerer: c.options.Metrics,
	})
	if err != nil {
		return err
	}
	return c.run(s.Run)
}

// maxChattyNodes is the number of simulated nodes up to which they also tell by
// events what they do; thousands of them would only bury everybody else's.
const maxChattyNodes = 100

func (c *control) addSimulator() error {
	if c.options.SimulatedNodes == 0 {
		return nil
	}
	config := simulator.Config{
		Nodes: c.options.SimulatedNodes, Informers: c.manager.GetCache(), Writer: simulatorWriter{simulator.NewWriter(c.client), c.inside}, Version: version.Kubernetes(),
	}
	if c.options.SimulatedNodes <= maxChattyNodes {
		config.Events = c.recorder("kubelet")
	}
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
