package daemonset

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

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
		o.take(kinds[i], c)
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
				o.metrics.Rollouts.Forget(types.NamespacedName{Namespace: r.Namespace, Name: r.Name})
			}
			o.lanes.rows.Submit(func(ctx context.Context) {
				r := o.exec.CarryOut(ctx, j)
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
	o.metrics.TurnSeconds.Observe(o.cfg.Clock.Since(start).Seconds())
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

// An audit looks at so many nodes or pods at a time, and lets others work in between.
const (
	sliceSize  = 500
	slicePause = 5 * time.Millisecond
)

// audit compares, slice by slice, what the matrix was told with the objects themselves,
// recounts everything in it, and mends what has drifted. Drift is a bug; the audit keeps
// it from lasting and makes it seen.
func (o *owner) audit() {
	a := &o.auditing
	a.under, a.next = true, o.cfg.Clock.Now().Add(slicePause)
	var findings []string
	if !a.compared {
		findings, a.compared = o.book.AuditSlice(sliceSize)
	} else {
		var done bool
		if findings, done = o.matrix.AuditSlice(sliceSize); done {
			*a = auditing{}
		}
	}
	for _, f := range findings {
		o.metrics.AuditDrift.Inc()
		o.log.Error(nil, "Matrix had drifted and was mended", "finding", f)
	}
}
