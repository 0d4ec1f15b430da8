// Package standalone runs the DaemonSet controller alone, against any Kubernetes API, with its metrics and probes.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	restclient "k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/beside"
	"github.com/everynode/everynode/internal/controller/daemonset"
	"github.com/everynode/everynode/internal/controller/daemonset/copies"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
	"github.com/everynode/everynode/internal/controller/daemonset/placements"
	"github.com/everynode/everynode/internal/controller/daemonset/variants/storing"
	"github.com/everynode/everynode/internal/loop/podwriter"
	"github.com/everynode/everynode/internal/server/actors"
	"github.com/everynode/everynode/internal/server/loops"
)

// Options say how the DaemonSet controller runs alone, against any
// Kubernetes API.
type Options struct {
	// Config reaches the API.
	Config *restclient.Config
	// LeaderElection lets several instances stand by for each other.
	LeaderElection bool
	// LeaseNamespace and LeaseName are where the leader is written down.
	LeaseNamespace, LeaseName string
	// Workers is how many pods are created or deleted at a time; 0 means the
	// controller's default.
	Workers int
	// RecordDecisions is a file that gets a script of what the controller decides
	// and from what; empty for none.
	RecordDecisions string
	// Listen is the host:port where metrics and health are served, without TLS; empty for
	// nowhere.
	Listen string
	// FetchImage is the image of Everynode by whose pods nodes fetch images before their turn; empty for none.
	FetchImage string
	// Beside has it run beside the API's own DaemonSet controller, which goes on making the pods; nil in its place.
	Beside *beside.Options
}

// Run runs the DaemonSet controller and nothing else until
// ctx ends. The API's own DaemonSet controller must be off, since two would undo each
// other's work; or it makes the pods, and this one runs beside it.
func Run(ctx context.Context, o Options) error {
	ctrl.SetLogger(klog.FromContext(ctx))
	client, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return fmt.Errorf("make the controller's client: %w", err)
	}
	err = reach(ctx, o, client)
	if err != nil {
		return err
	}
	options, watches, err := reading(ctx, o)
	if err != nil {
		return err
	}
	events := actors.NewBroadcaster(ctx)
	defer events.Shutdown()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := actors.NewLimitedRecorder(events.NewRecorder(actors.KnownKinds,
		corev1.EventSource{Component: daemonset.EventSource}),
		clock.RealClock{})
	fenced := o.Config
	if o.LeaderElection {
		fence, err := elect(ctx, &options, o, recorder)
		if err != nil {
			return err
		}
		fenced = fence.Around(o.Config)
	}
	mgr, err := ctrl.NewManager(o.Config, options)
	if err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	writing, err := kubernetes.NewForConfig(fenced)
	if err != nil {
		return fmt.Errorf("make the client that the controller writes by: %w", err)
	}
	own, err := everynode.NewForConfig(fenced)
	if err != nil {
		return fmt.Errorf("make the controller's client of its own kinds: %w", err)
	}
	shown, err := listenForProbes(o.Listen, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	})
	if err != nil {
		return err
	}
	defer shown.close()
	late, err := newLate(o, mgr.GetCache())
	if err != nil {
		return err
	}
	placements := placements.New()
	writer, err := addGuest(ctx, mgr, o, parts{fenced, writing, recorder, shown, late.done, placements})
	if err != nil {
		return err
	}
	run, err := loops.DaemonSets(daemonset.Config{
		Registerer: shown.registry, Guest: o.Beside != nil, Startups: o.Beside == nil, Placements: placements,
		FetchImage: o.FetchImage, FetchBy: podwriter.Writer{Client: writing}, Watches: watches,
		Rollouts: executor.NewRolloutWriter(own), Content: copies.Access{Client: writing},
		Variants: executor.NewVariantWriter(own), Trials: trials(o, client), Speaker: own,
		Informers: mgr.GetCache(), Writer: writer, Workers: o.Workers,
		Recorder: recorder, NormalizeTemplate: defaults.SetTemplate,
	}, o.RecordDecisions)
	if err != nil {
		return fmt.Errorf("set up the DaemonSet controller: %w", err)
	}
	err = errors.Join(mgr.Add(late.before(run)), mgr.Add(shown))
	if err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the DaemonSet controller: %w", err)
	}
	return nil
}

// reading says how the manager reads objects, and returns what notices when Everynode's own kinds cannot be read.
func reading(ctx context.Context, o Options) (manager.Options, *daemonset.Watches, error) {
	options := loops.ManagerOptions(ctx)
	// Nobody reads who wrote which field, so that is not kept.
	options.Cache.DefaultTransform = cache.TransformStripManagedFields()
	own, err := everynode.NewForConfig(o.Config)
	if err != nil {
		return options, nil, fmt.Errorf("make the client that reads the controller's own kinds: %w", err)
	}
	watches := daemonset.NewWatches(clock.RealClock{})
	options.Cache.NewInformer = func(lw toolscache.ListerWatcher, of runtime.Object, resync time.Duration,
		indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if by := own.ListWatch(of); by != nil { // the manager's would not say which fields it leaves out
			lw = by
		}
		return toolscache.NewSharedIndexInformer(watches.Of(lw, of), of, resync, indexers)
	}
	return options, watches, nil
}

// trials are how pods of variants are tried before nodes are changed. Beside another controller nobody here may make a
// pod: what the API refuses shows at the canary.
func trials(o Options, client kubernetes.Interface) storing.Trier {
	if o.Beside != nil {
		return nil
	}
	return podwriter.Writer{Client: client}
}

// parts are what the controller's parts share. caughtUp is closed once the cache has seen what the API holds.
type parts struct {
	fenced   *restclient.Config
	writing  kubernetes.Interface
	recorder record.EventRecorder
	shown    *probed
	caughtUp <-chan struct{}
	// placements tells who opens nodes which daemons these are to get.
	placements *placements.Board
}

// addGuest adds what is needed beside the API's own DaemonSet controller, or in its place, and returns what is to be
// written by.
func addGuest(ctx context.Context, mgr manager.Manager, o Options, p parts) (executor.Writer, error) {
	writer := executor.NewWriter(p.writing)
	if o.Beside == nil {
		return writer, addStartups(mgr, p.fenced, p.recorder, p.shown.registry, p.placements)
	}
	guest, err := beside.New(ctx, beside.Config{
		Options: *o.Beside, API: o.Config, Writing: p.fenced, Recorder: p.recorder, Normalize: defaults.SetTemplate,
		Registerer: p.shown.registry, CaughtUp: p.caughtUp,
	})
	if err != nil {
		return nil, fmt.Errorf("run beside another DaemonSet controller: %w", err)
	}
	p.shown.answers = guest.Answers
	return guestWriter{writer, guest, mgr.GetCache(), p.writing}, guest.AddTo(mgr)
}

// guestWriter deletes pods only while admission gives each new pod its node's revision.
type guestWriter struct {
	executor.Writer
	guest   *beside.Guest
	objects cache.Cache
	by      kubernetes.Interface
}

// DeletePod implements executor.Writer.
func (w guestWriter) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	return w.guest.DeletePod(ctx, w.by, w.objects, types.NamespacedName{Namespace: namespace, Name: name}, uid)
}
