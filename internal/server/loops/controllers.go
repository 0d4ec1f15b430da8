package loops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/everynode/everynode/internal/apiserver"
	"github.com/everynode/everynode/internal/apiserver/bootstrap"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/controller/daemonset"
	"github.com/everynode/everynode/internal/controller/daemonset/placements"
	"github.com/everynode/everynode/internal/controller/garbagecollector"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/scheduler"
	"github.com/everynode/everynode/internal/server/actors"
	"github.com/everynode/everynode/internal/simulator/illness"
)

// Config is what the control loops work with.
type Config struct {
	// API is where they read and write, in process.
	API *apiserver.Server
	// PKI signs certificates, Service is where Service addresses come from, and Pods where pods' do.
	PKI     *pki.Bundle
	Service *net.IPNet
	Pods    node.PodNetworks
	// Restored tells that the database is of a backup.
	Restored bool
	// SigningDuration is how long certificates that are asked for are good for at most; 0 for a year.
	SigningDuration time.Duration
	// NoDaemonSetController leaves the DaemonSets to a controller that runs elsewhere.
	NoDaemonSetController bool
	// BindDaemonsLater has the scheduler bind every pod of a daemon after it was created.
	BindDaemonsLater bool
	// RecordDecisions is a file that gets a script of what the DaemonSet controller decides; empty for none.
	RecordDecisions string
	// SimulatedNodes is how many nodes are simulated; Faults says which are ill, nil for none.
	SimulatedNodes int
	Faults         *illness.Plan
	// Backups makes the loop that makes backups; nil for none.
	Backups func(kubernetes.Interface, record.EventRecorder, prometheus.Registerer) (run func(context.Context) error,
		err error)
	// Metrics takes what the loops count; nil counts for nobody.
	Metrics prometheus.Registerer
}

// control is what the control loops share: one cache and one clock.
type control struct {
	Config
	manager manager.Manager
	actors  *actors.Actors
	// watches sees whether policies and rollouts can be read.
	watches *daemonset.Watches
	// placements tells who opens nodes which daemons these are to get.
	placements *placements.Board
	// scheduler is the one of this process, and schedulerActor who it is to the API.
	scheduler      *scheduler.Scheduler
	schedulerActor *actors.Actor
}

// Run runs every control loop until ctx ends; all its writes are in the turn that ctx has, if any. With ErrStillAtWork
// some of them did not stop.
func Run(ctx context.Context, cfg Config) error {
	ctrl.SetLogger(klog.FromContext(ctx))
	c := &control{Config: cfg, actors: actors.New(ctx, cfg.API), watches: daemonset.NewWatches(clock.RealClock{}),
		placements: placements.New()}
	defer c.actors.Stop()
	options := ManagerOptions(ctx)
	options.MapperProvider = func(*restclient.Config, *http.Client) (meta.RESTMapper,
		error) {
		return mapper(cfg.API.Kinds()), nil
	}
	// Kinds that change often are in memory already, decoded.
	options.Cache.NewInformer = func(lw toolscache.ListerWatcher, of runtime.Object, resync time.Duration,
		indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if inside := cfg.API.ListWatch(of); inside != nil {
			lw = inside
		}
		return toolscache.NewSharedIndexInformer(c.watches.Of(lw, of), of, resync, indexers)
	}
	var err error
	c.manager, err = ctrl.NewManager(c.actors.ConfigFor(bootstrap.ManagerAccount()), options)
	if err != nil {
		return fmt.Errorf("set up the controllers: %w", err)
	}
	if err := c.addAll(); err != nil {
		return err
	}
	return ended(ctx, c.manager.Start(ctx))
}

// ErrStillAtWork says that control loops did not stop when they were told to.
var ErrStillAtWork = errors.New("control loops are still at work, and only the end of the process stops them")

// ended tells what the end of the manager means.
func ended(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded): // the manager gives up waiting
		return fmt.Errorf("%w: %w", ErrStillAtWork, err)
	}
	return fmt.Errorf("run the controllers: %w", err)
}

// ManagerOptions are those of every manager of control loops; who leads, and how
// kinds are found, is added by the caller.
func ManagerOptions(ctx context.Context) manager.Options {
	return manager.Options{
		Scheme: actors.KnownKinds,
		// Objects from the cache are shared and never changed.
		Cache: cache.Options{DefaultUnsafeDisableDeepCopy: ptr.To(true)},
		NewCache: func(config *restclient.Config, o cache.Options) (cache.Cache, error) {
			c, err := cache.New(config, o)
			return stoppableCache{c, ctx.Done()}, err
		},
		Metrics: metricsserver.Options{BindAddress: "0"},
		Logger:  klog.FromContext(ctx),
		// Tests run several servers in one process.
		Controller:                    config.Controller{SkipNameValidation: ptr.To(true)},
		LeaderElectionReleaseOnCancel: true,
	}
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

// cachedWhole are the kinds that some control loop watches anyway.
var cachedWhole = map[string]client.Object{
	"Pod": &corev1.Pod{}, "Node": &corev1.Node{}, "Namespace": &corev1.Namespace{},
	"DaemonSet": &appsv1.DaemonSet{}, "ControllerRevision": &appsv1.ControllerRevision{},
	"ReplicationController": &corev1.ReplicationController{},
	"ReplicaSet":            &appsv1.ReplicaSet{}, "StatefulSet": &appsv1.StatefulSet{},
	"Deployment": &appsv1.Deployment{},
	"CronJob":    &batchv1.CronJob{}, "Job": &batchv1.Job{},
	"Service": &corev1.Service{}, "EndpointSlice": &discoveryv1.EndpointSlice{},
	"Endpoints":        &corev1.Endpoints{}, //nolint:staticcheck // Old clients still read Endpoints.
	"ResourceQuota":    &corev1.ResourceQuota{},
	"PersistentVolume": &corev1.PersistentVolume{}, "PersistentVolumeClaim": &corev1.PersistentVolumeClaim{},
	"StorageClass": &storagev1.StorageClass{}, "PriorityClass": &schedulingv1.PriorityClass{},
	"Lease": &coordinationv1.Lease{}, "PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
	"HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{},
	"ResourceClaim":           &resourcev1.ResourceClaim{}, "ResourceClaimTemplate": &resourcev1.ResourceClaimTemplate{},
}

// collected lists the kinds whose objects may own or be owned. Events are
// owned by nobody and live an hour.
func collected(kinds []resource.Definition) (out []garbagecollector.Resource) {
	for _, k := range kinds {
		if k.Plural == "events" {
			continue
		}
		out = append(out, garbagecollector.Resource{
			GVR: k.GroupVersionResource(), GVK: k.GroupVersionKind(), Namespaced: !k.ClusterScoped,
			Prototype: cachedWhole[k.Kind.Kind],
		})
	}
	return out
}

// stoppableCache is a cache for which nobody waits when the manager has been told to
// stop. The manager itself would wait for ever for a cache that cannot fill any more.
type stoppableCache struct {
	cache.Cache
	stop <-chan struct{}
}

// WaitForCacheSync tells that the cache is filled, or need not be.
func (c stoppableCache) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	synced := make(chan bool, 1)
	go func() { synced <- c.Cache.WaitForCacheSync(ctx) }()
	select {
	case ok := <-synced:
		return ok
	case <-c.stop:
		return true
	}
}
