package daemonset

import (
	"cmp"
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/fetches"
	"github.com/everynode/everynode/internal/controller/daemonset/fetches/asking"
	"github.com/everynode/everynode/internal/controller/daemonset/lane"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/mold"
	"github.com/everynode/everynode/internal/controller/daemonset/pins"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/controller/daemonset/startups"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
	"github.com/everynode/everynode/internal/controller/daemonset/variants/storing"
)

// owner holds everything that changes. Only its goroutine touches it.
type owner struct {
	cfg     Config
	buffer  *buffer
	exec    *executor
	metrics *metrics
	podLane *lane.Lane
	rowLane *lane.Lane
	// claimLane is for jobs of many writes, so that no status waits for them.
	claimLane *lane.Lane
	log       klog.Logger
	book      *belongings.Book
	matrix    decisions
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

func newOwner(c *Controller, pods, rows, claims *lane.Lane) *owner {
	o := &owner{
		cfg: c.cfg, own: &c.own, buffer: c.buffer, metrics: c.metrics, podLane: pods, rowLane: rows, claimLane: claims,
		exec: &executor{writer: c.cfg.Writer, rollouts: c.cfg.Rollouts, recorder: c.cfg.Recorder, clock: c.cfg.Clock,
			metrics: c.metrics, normalize: c.cfg.NormalizeTemplate},
	}
	o.matrix = matrix.New(c.cfg.Limits)
	if c.cfg.Record != nil {
		o.matrix = newRecorder(c.cfg.Limits, c.cfg.Record)
	}
	o.startups = startups.New(o.matrix)
	o.variants = variants.New(o.startups)
	o.fetches = fetches.New(o.variants, c.cfg.FetchImage)
	o.pins = pins.New(o.fetches)
	o.contents, o.following = contents.New(o.pins), map[followed]context.CancelFunc{}
	o.contents.Live, o.contents.Linger = c.cfg.LiveContent, cmp.Or(c.cfg.CopiesLinger, o.contents.Linger)
	o.book = belongings.New(o.contents, c.cfg.NormalizeTemplate)
	templates := mold.Templates{Book: o.book}
	o.pins.Objects, o.pins.Guest, o.variants.Objects = templates, c.cfg.Guest, templates
	o.variants.Tries = c.cfg.Trials != nil
	o.rollouts = rollouts.New(rolloutRows{o.contents, o.matrix}, time.LoadLocation)
	o.molds = mold.NewMaker(mold.Maker{Revisions: o.book, Contents: o.contents, Pins: o.pins, Startups: o.startups,
		Variants: o.variants, Follows: func(uid types.UID) bool { _, is := o.matrix.Rollout(uid); return is }})
	o.book.Guest, o.rollouts.Guest, o.book.Live = c.cfg.Guest, c.cfg.Guest, c.cfg.LiveContent
	o.contents.Guest, o.variants.Guest = c.cfg.Guest, c.cfg.Guest
	o.fetches.Objects = mold.Source{Templates: templates, Maker: o.molds}
	return o
}

// run is the owner goroutine: take in what changed, decide, hand out.
func (o *owner) run(ctx context.Context) {
	o.log = klog.FromContext(ctx)
	audit := o.cfg.Clock.NewTicker(o.cfg.AuditInterval)
	defer audit.Stop()
	var look <-chan time.Time
	if o.cfg.Watches != nil {
		ticker := o.cfg.Clock.NewTicker(lookEvery)
		defer ticker.Stop()
		look = ticker.C()
	}
	for ctx.Err() == nil {
		o.turn(ctx)
		o.wait(ctx, audit.C(), look)
	}
	if r, ok := o.matrix.(*recorder); ok && r.err != nil {
		o.log.Error(r.err, "The recording of decisions is not complete")
	}
}

// wait returns when there is something to do.
func (o *owner) wait(ctx context.Context, audit, look <-chan time.Time) {
	var due <-chan time.Time
	if o.auditing.under {
		left := o.auditing.next.Sub(o.cfg.Clock.Now())
		if left <= 0 {
			o.audit() // events may never end
			return
		}
		pause := o.cfg.Clock.NewTimer(left)
		defer pause.Stop()
		audit = pause.C()
	}
	if at, ok := o.nextTurn(); ok {
		timer := o.cfg.Clock.NewTimer(max(0, at.Sub(o.cfg.Clock.Now())))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-o.buffer.wake:
	case <-due:
	case <-look:
	case <-audit:
		o.audit()
	}
}

func (o *owner) turn(ctx context.Context) {
	start := o.cfg.Clock.Now()
	o.now = start
	o.matrix.Step(fact.Now{Time: o.now})
	o.book.Step(belongings.Now{Time: o.now})
	o.rollouts.Step(rollouts.Now{Time: o.now})
	o.contents.Tell(contents.Now{Time: o.now})
	o.pins.Tick(o.now)
	o.fetches.Tick(o.now)
	o.variants.Tick(o.now)
	own, unread := o.own.look() // before draining: what has been read by now is in the buffer
	if unread != "" {
		o.variants.TellUnread(unread)
	}
	kinds, changes, results := o.buffer.drain()
	for i, c := range changes {
		o.apply(kinds[i], c)
	}
	o.look(own)
	o.variants.TellUnread(unread)
	for _, f := range results {
		f(o)
	}
	for _, j := range o.book.Jobs() {
		o.handOut(j)
	}
	if o.cfg.Rollouts != nil {
		for _, j := range o.rollouts.Jobs() {
			if r := j.Over(); r != nil {
				o.metrics.rollouts.forget(types.NamespacedName{Namespace: r.Namespace, Name: r.Name})
			}
			o.rowLane.Submit(func(ctx context.Context) {
				r := o.exec.carryOut(ctx, j)
				o.buffer.result(func(o *owner) { o.rollouts.Step(r) })
			})
		}
	}
	o.keepContents(ctx)
	o.keepVariants()
	for _, a := range o.matrix.Ready() {
		o.dispatch(a)
	}
	o.fetchByPods()
	o.cfg.Placements.Answer(o.startups.ListedSets(), o.matrix)
	o.metrics.turnSeconds.Observe(o.cfg.Clock.Since(start).Seconds())
}

// look takes in whether policies and rollouts can be read.
func (o *owner) look(own rollouts.Sight) {
	if own == o.seen {
		return
	}
	o.seen = own
	if own == (rollouts.Sight{}) {
		o.log.Info("Policies and rollouts can be read again")
	} else {
		o.log.Info("Nothing new begins where a policy is followed", "policies", own.Policies, "rollouts", own.Rollouts)
	}
	o.rollouts.Step(own)
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

func (o *owner) apply(kind string, c change) {
	o.own.strange.Look(o.log, c.obj, c.deleted)
	if o.tellVariants(kind, c) {
		return
	}
	switch obj := c.obj.(type) {
	case *appsv1.DaemonSet:
		if o.cfg.Guest {
			obj = admit.AsWritten(obj)
		}
		if c.deleted {
			o.forget(obj)
		}
		if o.cfg.Rollouts != nil {
			// First: the row must not act before it knows what to follow.
			o.contents.Tell(contents.DaemonSet{Object: obj, Gone: c.deleted})
			o.rollouts.Step(rollouts.DaemonSet{Object: obj, Gone: c.deleted})
		}
		o.book.Step(belongings.DaemonSet{Object: obj, Gone: c.deleted})
	case *appsv1.ControllerRevision:
		o.book.Step(belongings.Revision{Object: obj, Gone: c.deleted, Added: c.added})
	case *corev1.Node:
		if c.deleted {
			o.startups.Step(fact.NodeGone(obj.Name))
		} else {
			o.startups.Step(fact.OfNode(obj))
			o.matrix.Step(fact.HealthOf(obj))
		}
	case *v1alpha1.RolloutPolicy:
		o.rollouts.Step(rollouts.Policy{Object: obj, Gone: c.deleted})
	case *v1alpha1.DaemonSetRollout:
		owner := types.UID(obj.Labels[rollouts.OwnerLabel])
		o.contents.Tell(contents.Stored{Rollout: obj, Owner: owner, Gone: c.deleted})
		o.rollouts.Step(rollouts.Rollout{Object: obj, Gone: c.deleted})
	case *v1alpha1.NodeStartup:
		o.startups.Tell(obj, c.deleted)
	case *corev1.Pod:
		o.applyPod(obj, c.deleted)
	case *corev1.ConfigMap, *corev1.Secret:
		o.contents.Tell(contents.Object{Object: obj.(metav1.Object), Gone: c.deleted})
	default:
		o.log.Error(nil, "Informer delivers an unexpected type", "kind", kind)
	}
}

func (o *owner) applyPod(p *corev1.Pod, gone bool) {
	if fetchpod.Is(p) {
		o.fetches.Tell(p, gone)
	} else {
		o.book.Step(belongings.Pod{Object: p, Gone: gone})
	}
}

// handOut hands a job to a worker.
func (o *owner) handOut(j belongings.Job) {
	done := func(e belongings.Event) { o.buffer.result(func(o *owner) { o.book.Step(e) }) }
	switch j := j.(type) {
	case *belongings.RevisionJob:
		on := o.rowLane
		if len(j.Relabel) > 0 {
			on = o.claimLane
		}
		on.Submit(func(ctx context.Context) { done(o.exec.applyRevisions(ctx, j)) })
	case *belongings.CleanupJob:
		o.rowLane.Submit(func(ctx context.Context) { done(o.exec.cleanUp(ctx, j)) })
	case *belongings.ClaimJob:
		o.claimLane.Submit(func(ctx context.Context) { done(o.exec.claimPods(ctx, j)) })
	case *belongings.Notice:
		if j.Err != nil {
			o.log.Error(j.Err, "DaemonSet cannot be worked on", "daemonSet", klog.KObj(j.DaemonSet))
		} else {
			o.cfg.Recorder.Event(j.DaemonSet, corev1.EventTypeWarning, j.Reason, j.Message)
		}
	}
}

// dispatch hands an action to a worker, with the objects it was decided on.
func (o *owner) dispatch(a action.Action) {
	ds, latest := o.book.Acted(a.Row())
	if ds == nil {
		o.matrix.Step(action.Answer{Action: a, Outcome: action.Gone})
		return
	}
	done := func(e action.Answer) {
		e.Action = a
		o.buffer.result(func(o *owner) { o.pins.Step(e) })
	}
	switch a := a.(type) {
	case *action.CreatePod:
		o.pins.Begun(a.Row(), a.Revision, a.PodName)
		of, err := o.molds.For(ds, a)
		if err != nil {
			o.cfg.Recorder.Eventf(ds, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
			o.pins.Step(action.Answer{Action: a, Outcome: action.Failed, Refused: mold.Refusal(err)})
			return
		}
		o.podLane.Submit(func(ctx context.Context) { done(o.exec.createPod(ctx, ds, of, a)) })
	case *action.DeletePod:
		o.remove(ds, a, done)
	case *action.PointPod:
		o.point(ds, a, done)
	case *action.ResizePod:
		o.resize(ds, a, done)
	case *action.FetchImages:
		o.fetch(ds, a, done)
	case *action.FailedPlacement:
		o.cfg.Recorder.Eventf(ds, corev1.EventTypeWarning, "FailedPlacement", "failed to place pod on %q: %s", a.Node,
			a.Detail)
	case *action.RolloutNews:
		o.tell(ds, a)
	case *action.UpdateRollout:
		o.metrics.rollouts.show(a)
		have := o.rollouts.RolloutOf(ds)
		o.rowLane.Submit(func(ctx context.Context) {
			updated, out := o.exec.updateRollout(ctx, ds, have, a)
			o.buffer.result(func(o *owner) {
				o.rollouts.Step(rollouts.Written{Was: have, Is: updated, Outcome: out})
				o.matrix.Step(action.Answer{Action: a, Outcome: out})
			})
		})
	case *action.UpdateStatus:
		o.rowLane.Submit(func(ctx context.Context) {
			updated, out := o.exec.updateStatus(ctx, latest, a)
			o.buffer.result(func(o *owner) {
				if _, known := o.book.Acted(a.UID); known != nil && updated != nil {
					o.book.Step(belongings.DaemonSet{Object: updated})
				}
				o.matrix.Step(action.Answer{Action: a, Outcome: out})
			})
		})
	}
}

// forget drops what is kept about a DaemonSet that is gone.
func (o *owner) forget(ds *appsv1.DaemonSet) {
	o.molds.Forget(ds.UID)
	o.metrics.rollouts.forget(types.NamespacedName{Namespace: ds.Namespace, Name: ds.Name})
}

// fetch has a worker ask a node for images, or a pod of its own kind.
func (o *owner) fetch(ds *appsv1.DaemonSet, a *action.FetchImages, done func(action.Answer)) {
	if o.fetches.Takes(a) {
		o.matrix.Step(action.Answer{Action: a, Outcome: action.OK})
		return
	}
	var request *fetch.Request
	if a.Revision != "" {
		of, err := o.molds.Of(ds, a.Revision)
		if err != nil {
			o.log.V(2).Info("Cannot ask a node for images", "node", a.Node, "err", err)
			o.matrix.Step(action.Answer{Action: a, Outcome: action.Failed})
			return
		}
		request = asking.For(a.Revision, of.Spec(), o.book.Pod(a.PodUID))
	}
	o.podLane.Submit(func(ctx context.Context) { done(action.Answer{Outcome: o.exec.fetchImages(ctx, a, request)}) })
}

// fetchByPods hands out what is to be done about pods that fetch.
func (o *owner) fetchByPods() {
	for _, j := range o.fetches.Jobs() {
		o.podLane.Submit(func(ctx context.Context) {
			r := asking.Do(ctx, o.cfg.FetchBy, j)
			o.buffer.result(func(o *owner) { o.fetches.TellResult(r) })
		})
	}
}

// followed is a kind that is read in a namespace.
type followed struct {
	namespace string
	kind      content.Kind
}

// keepContents reads what can be content, and hands out what is to be written about it.
func (o *owner) keepContents(ctx context.Context) {
	if want, moved := o.contents.Follow(); moved {
		o.read(ctx, want)
	}
	for _, j := range o.contents.Jobs() {
		o.rowLane.Submit(func(ctx context.Context) {
			r := o.cfg.Content.CarryOut(ctx, j)
			if r.Why != "" {
				o.metrics.writesFailed.Inc()
			}
			o.buffer.result(func(o *owner) { o.contents.Tell(r) })
		})
	}
	for _, n := range o.contents.News() {
		o.tell(n.DaemonSet, &action.RolloutNews{Warning: n.Warning, Event: n.Reason, Message: n.Message})
	}
}

// read has just these kinds be read, by namespace.
func (o *owner) read(ctx context.Context, want map[string]map[content.Kind]bool) {
	for f, end := range o.following {
		if !want[f.namespace][f.kind] {
			end()
			delete(o.following, f)
			o.contents.Tell(contents.Sight{Namespace: f.namespace, Kind: f.kind, Over: true})
		}
	}
	for namespace, kinds := range want {
		for kind := range kinds {
			o.follow(ctx, followed{namespace, kind})
		}
	}
}

func (o *owner) follow(ctx context.Context, f followed) {
	if o.following[f] != nil {
		return
	}
	ctx, o.following[f] = context.WithCancel(ctx)
	if o.cfg.Content == nil {
		o.contents.Tell(contents.Sight{Namespace: f.namespace, Kind: f.kind,
			Why: "this controller reads no ConfigMaps and Secrets"})
		return
	}
	handler := o.buffer.handler(string(f.kind), sameVersion)
	o.cfg.Content.Follow(ctx, f.namespace, f.kind, handler, func(s contents.Sight) {
		o.buffer.result(func(o *owner) {
			if ctx.Err() == nil {
				o.contents.Tell(s)
			}
		})
	})
}

// tellVariants takes in what variants go by. It returns true for what is of no other use.
func (o *owner) tellVariants(kind string, c change) bool {
	switch obj := c.obj.(type) {
	case *v1alpha1.DaemonSetVariant:
		o.variants.TellVariant(obj, c.deleted)
		return true
	case *appsv1.DaemonSet:
		o.variants.TellDaemonSet(obj, c.deleted)
	case *corev1.Node:
		if kind == kindNodeSize {
			o.variants.TellNode(obj, c.deleted)
			return true
		}
	case *appsv1.ControllerRevision:
		if variants.IsStored(obj) {
			o.variants.TellStored(obj, c.deleted)
			return true
		}
	}
	return false
}

// keepVariants settles which variants there are, and hands out what is to be written about them.
func (o *owner) keepVariants() {
	o.variants.Settle()
	for _, j := range o.variants.Jobs() {
		o.rowLane.Submit(func(ctx context.Context) {
			r := storing.Store(ctx, o.cfg.Writer, j)
			if r.Why != "" {
				o.metrics.writesFailed.Inc()
			}
			o.buffer.result(func(o *owner) { o.variants.TellResult(r) })
		})
	}
	for _, t := range o.variants.Trials() {
		o.tryPod(t)
	}
	if o.cfg.Variants == nil {
		return
	}
	statuses, moved := o.variants.Statuses()
	if moved {
		storing.Show(o.metrics.variants, o.variants.Reserved())
	}
	for _, v := range statuses {
		o.rowLane.Submit(func(ctx context.Context) {
			written := storing.Tell(ctx, o.cfg.Variants, v)
			o.buffer.result(func(o *owner) { o.variants.TellStatus(v, written) })
		})
	}
}
