package beside

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/fresh"
)

// lookWithin is how long a deletion waits until everything was looked at once.
const lookWithin = 30 * time.Second

// trials are tries whether the API server asks the webhook about a DaemonSet, and is answered. Deletions of its pods
// that wait for one share it; each DaemonSet has a rollout of its own, which the webhook may be able to read or not.
type trials struct {
	reads fresh.Reads[types.UID, struct{}]

	mu   sync.Mutex
	last map[types.UID]trial
}

// tryEvery is the least time between two tries of a DaemonSet: pods become available one by one, and each deletion
// waits for a try of its own otherwise.
const tryEvery = 100 * time.Millisecond

type trial struct {
	began time.Time
	err   error
}

// errNotLooked says that a deletion came too early.
var errNotLooked = errors.New("it is not known yet which pods are of a wrong revision")

// MayDelete returns an error while the API server does not ask the webhook about the DaemonSet, or gets no answer: the
// pod that is made in place of one deleted would have the newest revision, whatever its node's is. Before the first
// count of wrong pods it waits, so that those are seen before they go back.
func (g *Guest) MayDelete(ctx context.Context, objects client.Reader, set types.UID, namespace string) error {
	select {
	case <-g.looked:
	case <-time.After(lookWithin):
		return errNotLooked
	case <-ctx.Done():
		return ctx.Err()
	}
	// Deletions share the next try. One that has begun does not do: where the webhook has gone since, the pod would be
	// made wrong once more, and deleted once more.
	_, err := g.trials.reads.Get(ctx, set, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, lookWithin)
		defer cancel()
		is := trial{began: time.Now()}
		is.err = g.ask(ctx, objects, set, namespace)
		g.trials.note(set, is)
		return struct{}{}, is.err
	})
	return err
}

func (t *trials) note(set types.UID, is trial) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		t.last = map[types.UID]trial{}
	}
	t.last[set] = is
}

// forget drops what came of tries of DaemonSets that are not there any more.
func (t *trials) forget(sets []appsv1.DaemonSet) {
	there := map[types.UID]bool{}
	for i := range sets {
		there[sets[i].UID] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.last, func(set types.UID, _ trial) bool { return !there[set] })
}

// mayReplace returns an error while no pod of a DaemonSet may be replaced: another account makes them than we were
// told, or MayDelete says so.
func (g *Guest) mayReplace(ctx context.Context, objects client.Reader, set types.UID, namespace string) error {
	err := g.makers.Other(set, g.cfg.Maker)
	if err != nil {
		return err
	}
	return g.MayDelete(ctx, objects, set, namespace)
}

// hindered says why no pod of a DaemonSet may be deleted, as long as nobody is asked about them; "" if they may. It
// tries again where the last try failed, so that it is known when that is over.
func (g *Guest) hindered(ctx context.Context, objects client.Reader, ds *appsv1.DaemonSet) string {
	err := g.makers.Other(ds.UID, g.cfg.Maker)
	if err != nil {
		return err.Error()
	}
	g.trials.mu.Lock()
	last := g.trials.last[ds.UID]
	g.trials.mu.Unlock()
	if !errors.Is(last.err, errNotAsked) {
		return ""
	}
	if time.Since(last.began) > lookEvery {
		last.err = g.MayDelete(ctx, objects, ds.UID, ds.Namespace)
	}
	if errors.Is(last.err, errNotAsked) {
		return errNotAsked.Error()
	}
	return ""
}

// ask tries, without storing it, to give a DaemonSet back: by what comes of that it knows if the webhook is asked.
func (g *Guest) ask(ctx context.Context, objects client.Reader, set types.UID, namespace string) error {
	var sets appsv1.DaemonSetList
	err := objects.List(ctx, &sets, client.InNamespace(namespace))
	if err != nil {
		return fmt.Errorf("read the DaemonSets of namespace %s: %w", namespace, err)
	}
	for i := range sets.Items {
		ds := &sets.Items[i]
		if ds.UID != set || !admit.Taken(ds) || ds.DeletionTimestamp != nil {
			continue
		}
		waits, err := g.patch(ctx, ds, admit.WithoutStrategy(), []string{metav1.DryRunAll})
		if err != nil {
			return fmt.Errorf("try whether the webhook is asked about DaemonSet %s/%s: %w", namespace, ds.Name, err)
		}
		if waits {
			return fmt.Errorf("namespace %s: %w", namespace, errNotAsked)
		}
		return nil
	}
	return fmt.Errorf("the DaemonSet of namespace %s is gone, or follows no policy", namespace)
}

// OtherAccount is the reason of the event that says that another account makes the pods than we were told.
const OtherAccount = "MadeByAnotherAccount"

// tellOther makes an event where another account has begun to make the pods of a DaemonSet that follows a policy.
func (g *Guest) tellOther(ctx context.Context, ds *appsv1.DaemonSet) {
	err := g.makers.Other(ds.UID, g.cfg.Maker)
	switch {
	case err == nil, !admit.Taken(ds):
		delete(g.toldOther, ds.UID)
	case g.toldOther[ds.UID] != err.Error():
		g.toldOther[ds.UID] = err.Error()
		klog.FromContext(ctx).Error(err, "Leave a DaemonSet's pods as they are", "daemonSet", klog.KObj(ds))
		g.cfg.Recorder.Event(ds, corev1.EventTypeWarning, OtherAccount, err.Error())
	}
}
