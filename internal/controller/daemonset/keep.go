package daemonset

import (
	"context"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
	"github.com/everynode/everynode/internal/controller/daemonset/fetches/asking"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
	"github.com/everynode/everynode/internal/controller/daemonset/variants/storing"
	"github.com/everynode/everynode/internal/objects/podtemplate"
)

// keepContents reads what can be content, and hands out what is to be written about it.
func (o *owner) keepContents(ctx context.Context) {
	if want, moved := o.contents.Follow(); moved {
		o.read(ctx, want)
	}
	for _, j := range o.contents.Jobs() {
		o.lanes.rows.Submit(func(ctx context.Context) {
			r := o.cfg.Content.CarryOut(ctx, j)
			if r.Why != "" || r.Left != "" {
				o.metrics.WritesFailed.Inc()
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

// keepVariants settles which variants there are, and hands out what is to be written about them.
func (o *owner) keepVariants() {
	o.variants.Settle()
	for _, j := range o.variants.Jobs() {
		o.lanes.rows.Submit(func(ctx context.Context) {
			r := storing.Store(ctx, o.cfg.Writer, j)
			if r.Why != "" {
				o.metrics.WritesFailed.Inc()
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
		storing.Show(o.metrics.Variants, o.variants.Reserved())
	}
	for _, v := range statuses {
		o.lanes.rows.Submit(func(ctx context.Context) {
			written := storing.Tell(ctx, o.cfg.Variants, v)
			o.buffer.result(func(o *owner) { o.variants.TellStatus(v, written) })
		})
	}
}

// tryPod has a worker try the pod of a variant. What cannot be put together is said when one is made.
func (o *owner) tryPod(t *variants.Trial) {
	ds := t.DaemonSet
	a := &action.CreatePod{Target: action.Target{UID: ds.UID, Namespace: ds.Namespace, Name: ds.Name},
		Node: t.Node, Revision: t.Revision, PodName: podtemplate.NamePrefix(ds.Name) + "trial"}
	of, err := o.molds.For(ds, a)
	if err != nil {
		o.variants.TellVerdict(variants.Verdict{Trial: t})
		return
	}
	o.lanes.rows.Submit(func(ctx context.Context) {
		v := storing.Try(ctx, o.cfg.Trials, t, of.Pod(a), executor.BlamesTemplate)
		o.buffer.result(func(o *owner) { o.variants.TellVerdict(v) })
	})
}

// fetchByPods hands out what is to be done about pods that fetch.
func (o *owner) fetchByPods() {
	for _, j := range o.fetches.Jobs() {
		o.lanes.pods.Submit(func(ctx context.Context) {
			r := asking.Do(ctx, o.cfg.FetchBy, j)
			o.buffer.result(func(o *owner) { o.fetches.TellResult(r) })
		})
	}
}
