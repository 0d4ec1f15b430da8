package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/controller/daemonset"
	"github.com/everynode/everynode/internal/controller/daemonset/copies"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/garbagecollector"
	"github.com/everynode/everynode/internal/controller/nodeipam"
	"github.com/everynode/everynode/internal/controller/nodelifecycle"
	"github.com/everynode/everynode/internal/controller/nodelifecycle/health"
	"github.com/everynode/everynode/internal/controller/nodestartup"
	"github.com/everynode/everynode/internal/controller/podgc"
	podgcplan "github.com/everynode/everynode/internal/controller/podgc/plan"
	"github.com/everynode/everynode/internal/controller/serviceaccount"
	"github.com/everynode/everynode/internal/controller/tainteviction"
	"github.com/everynode/everynode/internal/loop/podwriter"
	"github.com/everynode/everynode/internal/scheduler"
	"github.com/everynode/everynode/internal/simulator"
	"github.com/everynode/everynode/test/chaos/faults"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/pulls"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/plan"
	"github.com/everynode/everynode/test/chaos/startup"
	"github.com/everynode/everynode/test/chaos/store"
)

// Times of the cluster that a round cannot wait for as they are.
const (
	heartbeat    = 300 * time.Millisecond
	gracePeriod  = 4 * time.Second
	goneForGood  = 300 * time.Millisecond
	longestRetry = time.Second
	// As everywhere it is longer than a pod that was written is waited for: that may refer to a copy.
	lingering = 12 * time.Second
	// What got no answer counts as perhaps done for so long. A round has no time for the five minutes that a cluster has.
	expecting = 30 * time.Second
)

// fittings are what a loop is put together from.
type fittings struct {
	ctx     context.Context //nolint:containedctx // The loop's own; it ends with the loop.
	manager manager.Manager
	client  kubernetes.Interface
	ours    *everynode.Client
	objects metadata.Interface
	view    *faults.View
	watches *daemonset.Watches
	parts   *parts
}

// run gives the manager a loop that starts with it, with the round's log.
func (f fittings) run(run func(context.Context) error) error {
	return f.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return run(klog.NewContext(ctx, klog.FromContext(f.ctx)))
	}))
}

// loopsByName puts each loop together, as internal/server does.
var loopsByName = map[string]func(fittings) error{
	"daemonset": func(f fittings) error {
		f.parts.journal.begins()
		f.view.Delivered = f.parts.journal.delivered
		config := daemonset.Config{
			Informers: f.view, Writer: listeningWriter{executor.NewWriter(f.client), f.parts.journal},
			Recorder: &record.FakeRecorder{},
			Rollouts: executor.NewRolloutWriter(f.ours), Watches: f.watches,
			NormalizeTemplate: defaults.SetTemplate, Content: copies.Access{Client: f.client},
			CopiesLinger: lingering, LiveContent: !f.parts.byPods, Startups: true,
			Variants: executor.NewVariantWriter(f.ours), Trials: podwriter.Writer{Client: f.client},
			Limits: row.Config{ExpectationsTimeout: expecting},
		}
		if f.parts.byPods {
			config.FetchImage, config.FetchBy = pulls.Image, podwriter.Writer{Client: f.client}
		}
		c, err := daemonset.New(config)
		if err != nil {
			return err
		}
		return f.run(c.Run)
	},
	"scheduler": func(f fittings) error {
		s, err := scheduler.New(scheduler.Config{
			Informers: f.view,
			Writer:    scheduler.NewWriter(f.client),
			Events:    noEvents{},
		})
		if err != nil {
			return err
		}
		return f.run(s.Run)
	},
	"simulator": func(f fittings) error {
		s, err := simulator.New(simulator.Config{
			Informers: f.view,
			Writer:    simulator.NewWriter(f.client),
			Heartbeat: heartbeat,
			Images:    images,
			Secrets: func(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
				return f.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
			},
			Faults: f.parts.ills,
		})
		if err != nil {
			return err
		}
		f.parts.fleet.Attach(s)
		return f.run(s.Run)
	},
	"garbagecollector": func(f fittings) error {
		g, err := garbagecollector.New(garbagecollector.Config{
			Resources: collected(f.parts.kinds), Informers: f.view, Metadata: f.objects, MaxRetryDelay: longestRetry,
		})
		if err != nil {
			return err
		}
		return f.run(g.Run)
	},
	"nodelifecycle": func(f fittings) error {
		return nodelifecycle.Add(f.manager, nodelifecycle.Config{
			Writer: nodelifecycle.NewWriter(f.client),
			Health: health.Config{
				GracePeriod:           gracePeriod,
				StartupGracePeriod:    2 * gracePeriod,
				EvictionRate:          10,
				SecondaryEvictionRate: 10,
			},
		})
	},
	"tainteviction": func(f fittings) error {
		return tainteviction.Add(f.manager, tainteviction.Config{Client: f.client})
	},
	"podgc": func(f fittings) error {
		return podgc.Add(f.manager, podgc.Config{
			Client: f.client, Period: longestRetry,
			Limits: podgcplan.Config{Quarantine: goneForGood, UnknownQuarantine: 4 * goneForGood},
		})
	},
	"nodeipam": func(f fittings) error {
		return nodeipam.Add(f.manager, nodeipam.Config{
			Writer:      nodeipam.NewWriter(f.client),
			ClusterCIDR: netip.MustParsePrefix("10.244.0.0/16"),
		})
	},
	plan.StartupLoop: func(f fittings) error {
		return nodestartup.Add(f.manager, nodestartup.Config{Startups: f.ours.NodeStartups(), Gates: startup.Gates{Client: f.client}})
	},
	"serviceaccount": func(f fittings) error {
		return serviceaccount.Add(f.manager, serviceaccount.Config{Client: f.client})
	},
}

// loop is one control loop behind a line of its own.
type loop struct {
	name string
	line *faults.Line
	// kill ends the loop; what it sent is under way.
	kill func()
}

// stop ends the loop and waits for what it sent.
func (l *loop) stop() {
	l.kill()
	l.line.Drain()
}

// start runs the loop until it is stopped or killed.
func (l *loop) start(p *parts) error {
	config := restclient.CopyConfig(p.config)
	config.Transport = l.line
	config.Impersonate = p.accounts[l.name]
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	ours, err := everynode.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(p.ctx)
	watches := daemonset.NewWatches(clock.RealClock{})
	mgr, err := ctrl.NewManager(config, managerOptions(ctx, p.mapper, watches))
	if err != nil {
		cancel()
		return fmt.Errorf("make the manager of %s: %w", l.name, err)
	}
	view := &faults.View{Informers: mgr.GetCache(), Line: l.line, Context: ctx}
	if err := loopsByName[l.name](fittings{
		ctx:     ctx,
		manager: mgr,
		client:  client,
		ours:    ours,
		objects: objects,
		view:    view,
		watches: watches,
		parts:   p,
	}); err != nil {
		cancel()
		return fmt.Errorf("set up %s: %w", l.name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	l.kill = func() {
		cancel()
		l.line.Resume()
		if err := <-ended; err != nil {
			p.journal.broken(fmt.Errorf("loop %s ended with: %w", l.name, err))
		}
		l.kill = nil
	}
	return nil
}

func managerOptions(ctx context.Context, mapper meta.RESTMapper, watches *daemonset.Watches) manager.Options {
	return manager.Options{
		Scheme: store.Kinds, Logger: klog.FromContext(ctx), MapperProvider: known(mapper),
		Cache: cache.Options{
			DefaultUnsafeDisableDeepCopy: ptr.To(true),
			NewInformer: func(
				lw toolscache.ListerWatcher, of runtime.Object, resync time.Duration, indexers toolscache.Indexers,
			) toolscache.SharedIndexInformer {
				return toolscache.NewSharedIndexInformer(watches.Of(faults.Emptied(lw), of), of, resync, indexers)
			},
		},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	}
}

// images behave as their tags say: "slow" takes a moment to pull, "fail" cannot be.
func images(image string) simulator.Image {
	out := simulator.DefaultImages(image)
	if len(image) > 5 && image[len(image)-5:] == ":slow" {
		out.StartDelay = 300 * time.Millisecond
	}
	return out
}

// collected lists the kinds that may own or be owned.
func collected(kinds []resource.Definition) (out []garbagecollector.Resource) {
	for _, k := range kinds {
		if k.Plural != "events" {
			out = append(out, garbagecollector.Resource{
				GVR:        k.GroupVersionResource(),
				GVK:        k.GroupVersionKind(),
				Namespaced: !k.ClusterScoped,
			})
		}
	}
	return out
}

// listeningWriter notes when the DaemonSet controller asks for what.
type listeningWriter struct {
	executor.Writer
	journal *journal
}

func (w listeningWriter) CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	w.journal.called(history.Call{Pod: p.Name})
	return w.Writer.CreatePod(ctx, p)
}

func (w listeningWriter) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	w.journal.called(history.Call{Pod: name, Delete: true})
	return w.Writer.DeletePod(ctx, namespace, name, uid)
}

func (w listeningWriter) ResizePod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	w.journal.called(history.Call{Pod: name, Resize: true})
	return w.Writer.ResizePod(ctx, namespace, name, patch)
}

func (w listeningWriter) PatchPod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	if bytes.Contains(patch, []byte(revision.LiveAnnotation)) {
		w.journal.called(history.Call{Pod: name, Point: true})
	}
	return w.Writer.PatchPod(ctx, namespace, name, patch)
}

// noEvents keeps the scheduler's events from the database; nobody reads them.
type noEvents struct{}

func (noEvents) Create(_ context.Context, e *corev1.Event) (*corev1.Event, error) { return e, nil }

func (noEvents) Patch(_ context.Context, e *corev1.Event, _ []byte) (*corev1.Event, error) {
	return e, nil
}
