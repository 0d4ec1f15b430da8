package server

import (
	"context"
	"fmt"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/controller/certificates"
	"github.com/everynode/everynode/internal/controller/clusterroleaggregation"
	"github.com/everynode/everynode/internal/controller/daemonset"
	"github.com/everynode/everynode/internal/controller/garbagecollector"
	"github.com/everynode/everynode/internal/controller/nodelifecycle"
	"github.com/everynode/everynode/internal/scheduler"
	"github.com/everynode/everynode/internal/simulator"
	"github.com/everynode/everynode/internal/version"
)

// control is what the control loops share: one cache, one client, one clock.
type control struct {
	*Server
	config  *restclient.Config
	client  kubernetes.Interface
	manager manager.Manager
	events  record.EventBroadcaster
}

// runControllers runs every control loop until ctx ends.
func (s *Server) runControllers(ctx context.Context) error {
	ctrl.SetLogger(klog.FromContext(ctx))
	c := &control{Server: s, config: s.api.LoopbackConfig()}
	var err error
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return fmt.Errorf("make the controllers' client: %w", err)
	}
	c.manager, err = ctrl.NewManager(c.config, manager.Options{
		Scheme: scheme.Scheme,
		// Objects from the cache are shared and never changed.
		Cache:          cache.Options{DefaultUnsafeDisableDeepCopy: ptr.To(true)},
		Metrics:        metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*restclient.Config, *http.Client) (meta.RESTMapper, error) { return mapper(s.api.Kinds()), nil },
		Logger:         klog.FromContext(ctx),
		// Tests run several servers in one process.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		// Several servers can share an etcd cluster; then one of them works.
		LeaderElection:                len(s.options.EtcdEndpoints) > 0,
		LeaderElectionID:              "everynode-controllers",
		LeaderElectionNamespace:       "kube-system",
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("set up the controllers: %w", err)
	}
	c.events = record.NewBroadcaster(record.WithContext(ctx))
	defer c.events.Shutdown()
	c.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.client.CoreV1().Events("")})
	for _, add := range []func(context.Context) error{
		c.addCertificates, c.addClusterRoles, c.addDaemonSets, c.addGarbageCollector, c.addNodeLifecycle, c.addScheduler, c.addSimulator,
	} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	if err := c.manager.Start(ctx); err != nil {
		return fmt.Errorf("run the controllers: %w", err)
	}
	return nil
}

// mapper knows the served kinds without asking for them.
func mapper(kinds []resource.Definition) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, k := range kinds {
		scope := meta.RESTScopeNamespace
		if k.ClusterScoped {
			scope = meta.RESTScopeRoot
		}
		m.AddSpecific(k.GroupVersionKind(), k.GroupVersionResource(), k.GroupVersion.WithResource(k.Singular), scope)
	}
	return m
}

// recorder returns a recorder of events in the name of a component.
func (c *control) recorder(component string) record.EventRecorder {
	return c.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
}

func (c *control) addCertificates(context.Context) error {
	return certificates.Add(c.manager, certificates.Config{Client: c.client, Signer: c.pki.Signer()})
}

func (c *control) addClusterRoles(context.Context) error {
	return clusterroleaggregation.Add(c.manager, clusterroleaggregation.Config{Client: c.client})
}

func (c *control) addDaemonSets(context.Context) error {
	ds, err := daemonset.New(daemonset.Config{
		Informers: c.manager.GetCache(), Writer: daemonset.NewWriter(c.client), Recorder: c.recorder(daemonset.EventSource),
		NormalizeTemplate: podspec.SetTemplateDefaults,
	})
	if err != nil {
		return fmt.Errorf("set up the DaemonSet controller: %w", err)
	}
	return c.manager.Add(manager.RunnableFunc(ds.Run))
}

func (c *control) addNodeLifecycle(context.Context) error {
	return nodelifecycle.Add(c.manager, nodelifecycle.Config{Client: c.client, Events: c.recorder("node-controller")})
}

func (c *control) addSimulator(context.Context) error {
	if c.options.SimulatedNodes == 0 {
		return nil
	}
	sim, err := simulator.New(simulator.Config{
		Nodes: c.options.SimulatedNodes, Informers: c.manager.GetCache(), Writer: simulator.NewWriter(c.client), Version: version.Kubernetes(),
	})
	if err != nil {
		return fmt.Errorf("set up the simulated nodes: %w", err)
	}
	return c.manager.Add(manager.RunnableFunc(sim.Run))
}

func (c *control) addScheduler(context.Context) error {
	s, err := scheduler.New(scheduler.Config{
		Informers: c.manager.GetCache(), Writer: scheduler.NewWriter(c.client), Events: scheduler.NewEventSink(c.client),
	})
	if err != nil {
		return fmt.Errorf("set up the scheduler: %w", err)
	}
	return c.manager.Add(manager.RunnableFunc(s.Run))
}

func (c *control) addGarbageCollector(context.Context) error {
	objects, err := metadata.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("make the garbage collector's client: %w", err)
	}
	gc, err := garbagecollector.New(garbagecollector.Config{
		Resources: collected(c.api.Kinds()), Informers: c.manager.GetCache(), Metadata: objects, Events: c.recorder("garbage-collector-controller"),
	})
	if err != nil {
		return err
	}
	return c.manager.Add(manager.RunnableFunc(gc.Run))
}

// cachedWhole are the kinds that some control loop watches anyway.
var cachedWhole = map[string]client.Object{
	"Pod": &corev1.Pod{}, "Node": &corev1.Node{}, "Namespace": &corev1.Namespace{},
	"DaemonSet": &appsv1.DaemonSet{}, "ControllerRevision": &appsv1.ControllerRevision{},
}

// collected lists the kinds whose objects may own or be owned. Events are
// owned by nobody and live an hour.
func collected(kinds []resource.Definition) (out []garbagecollector.Resource) {
	for _, k := range kinds {
		if k.Plural == "events" {
			continue
		}
		out = append(out, garbagecollector.Resource{
			GVR: k.GroupVersionResource(), GVK: k.GroupVersionKind(), Namespaced: !k.ClusterScoped, Prototype: cachedWhole[k.Kind.Kind],
		})
	}
	return out
}
