package daemonset

import (
	"cmp"
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
	"github.com/everynode/everynode/internal/controller/daemonset/fetches"
	"github.com/everynode/everynode/internal/controller/daemonset/lane"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/metrics"
	"github.com/everynode/everynode/internal/controller/daemonset/mold"
	"github.com/everynode/everynode/internal/controller/daemonset/pins"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/controller/daemonset/startups"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// owner holds everything that changes. Only its goroutine touches it.
type owner struct {
	cfg     Config
	buffer  *buffer[*owner]
	exec    *executor.Executor
	metrics *metrics.Metrics
	lanes   lanes
	log     klog.Logger
	book    *belongings.Book
	matrix  decisions
	// contents stands before the matrix: it adds what revisions hold beside their template.
	contents *contents.Book
	// pins stands between both: it keeps what images are resolved to.
	pins *pins.Book
	// fetches stands behind pins: it adds what nodes say that pods ask for images.
	fetches *fetches.Book
	// startups stands before the matrix itself: it adds which daemons wait for others on nodes that start.
	startups *startups.Book
	// variants stands before startups: it adds how pods differ from node to node.
	variants *variants.Book
	// following ends the reading of a namespace's kind.
	following map[followed]context.CancelFunc
	rollouts  *rollouts.Book
	own       *sight
	seen      rollouts.Sight
	molds     *mold.Maker
	now       time.Time
	// auditing is how far an audit has come.
	auditing auditing
}

// auditing is how far an audit has come: whether one is under way, whether the objects
// have been compared, so that the matrix is recounted next, and when it goes on.
type auditing struct {
	under, compared bool
	next            time.Time
}

// followed is a kind that is read in a namespace.
type followed struct {
	namespace string
	kind      content.Kind
}

// lanes are the workers.
type lanes struct {
	pods, rows *lane.Lane
	// claims is for jobs of many writes, so that no status waits for them.
	claims *lane.Lane
}

func newOwner(cfg Config, own *sight, from *buffer[*owner], m *metrics.Metrics, by lanes) *owner {
	o := &owner{
		cfg: cfg, own: own, buffer: from, metrics: m, lanes: by,
		exec: &executor.Executor{Writer: cfg.Writer, Rollouts: cfg.Rollouts, Recorder: cfg.Recorder, Clock: cfg.Clock,
			Metrics: m, Normalize: cfg.NormalizeTemplate},
	}
	o.matrix = matrix.New(cfg.Limits)
	if cfg.Record != nil {
		o.matrix = newRecorder(cfg.Limits, cfg.Record)
	}
	o.startups = startups.New(o.matrix)
	o.variants = variants.New(o.startups)
	o.fetches = fetches.New(o.variants, cfg.FetchImage)
	o.pins = pins.New(o.fetches)
	o.contents, o.following = contents.New(o.pins), map[followed]context.CancelFunc{}
	o.contents.Live, o.contents.Linger = cfg.LiveContent, cmp.Or(cfg.CopiesLinger, o.contents.Linger)
	o.book = belongings.New(o.contents, cfg.NormalizeTemplate)
	templates := mold.Templates{Book: o.book}
	o.pins.Objects, o.pins.Guest, o.variants.Objects = templates, cfg.Guest, templates
	o.variants.Tries = cfg.Trials != nil
	o.rollouts = rollouts.New(rolloutRows{o.contents, o.matrix}, time.LoadLocation)
	o.molds = mold.NewMaker(mold.Maker{Revisions: o.book, Contents: o.contents, Pins: o.pins, Startups: o.startups,
		Variants: o.variants, Follows: func(uid types.UID) bool { _, is := o.matrix.Rollout(uid); return is }})
	o.book.Guest, o.rollouts.Guest, o.book.Live = cfg.Guest, cfg.Guest, cfg.LiveContent
	o.contents.Guest, o.variants.Guest = cfg.Guest, cfg.Guest
	o.fetches.Objects = mold.Source{Templates: templates, Maker: o.molds}
	return o
}

// rolloutRows is what rollouts tell and ask. What they tell goes through all books; where a rollout stands is said in
// revisions with all their parts, by which people approve them and failures are remembered.
type rolloutRows struct {
	*contents.Book
	rows decisions
}

// Rollout is where the rollout of a DaemonSet stands.
func (r rolloutRows) Rollout(uid types.UID) (v1alpha1.DaemonSetRolloutStatus, bool) {
	return r.rows.Rollout(uid)
}

// nextTurn returns when there is something to do without any event.
func (o *owner) nextTurn() (time.Time, bool) {
	at, ok := o.matrix.NextTick()
	type ticks interface{ NextTick() (time.Time, bool) }
	for _, book := range []ticks{o.book, o.rollouts, o.contents, o.pins, o.fetches, o.variants} {
		if t, also := book.NextTick(); also && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	return at, ok
}

// forget drops what is kept about a DaemonSet that is gone.
func (o *owner) forget(ds *appsv1.DaemonSet) {
	o.molds.Forget(ds.UID)
	o.metrics.Rollouts.Forget(types.NamespacedName{Namespace: ds.Namespace, Name: ds.Name})
}

// tell makes an event of what is new about a rollout.
func (o *owner) tell(ds *appsv1.DaemonSet, a *action.RolloutNews) {
	kind := corev1.EventTypeNormal
	if a.Warning {
		kind = corev1.EventTypeWarning
	}
	o.cfg.Recorder.Event(ds, kind, a.Event, a.Message)
}
