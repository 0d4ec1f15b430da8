// Package strange tells people of objects of Everynode's own kinds that hold what this program does not know, since a
// newer one wrote it: nobody follows them here.
package strange

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
)

// kinds are those whose objects are looked at. Of NodeStartups those tell who open nodes.
var kinds = map[string]client.Object{"RolloutPolicy": &v1alpha1.RolloutPolicy{},
	"DaemonSetRollout": &v1alpha1.DaemonSetRollout{}, "DaemonSetVariant": &v1alpha1.DaemonSetVariant{}}

// awaitEvery is the time between two tries to read a kind that the API does not serve yet.
const awaitEvery = 5 * time.Second

// Informers is the part of the shared cache that is watched through.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Event(object runtime.Object, eventtype, reason, message string)
}

// Teller tells. Its methods may be called by several goroutines.
type Teller struct {
	recorder Recorder
	gauge    *prometheus.GaugeVec
	mu       sync.Mutex
	// told is what was said of objects, by their kind.
	told map[string]map[types.UID]string
}

// New returns one that counts where it is registered; nil for nowhere.
func New(recorder Recorder, reg prometheus.Registerer) (*Teller, error) {
	t := &Teller{recorder: recorder, told: map[string]map[types.UID]string{},
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "everynode", Name: "objects_with_unknown_fields",
			Help: "Objects of Everynode's own kinds that are not followed, since a newer program wrote fields into them " +
				"that this one does not know."}, []string{"kind"})}
	if reg == nil {
		return t, nil
	}
	if err := reg.Register(t.gauge); err != nil {
		return nil, fmt.Errorf("register the metric of objects that are not followed: %w", err)
	}
	return t, nil
}

// Run tells until ctx ends.
func (t *Teller) Run(ctx context.Context, objects Informers, c clock.WithTicker) {
	var all sync.WaitGroup
	for kind, object := range kinds {
		all.Go(func() { t.follow(ctx, objects, kind, object, c) })
	}
	all.Wait()
}

// follow looks at the objects of a kind, once the API serves it, until ctx ends.
func (t *Teller) follow(ctx context.Context, objects Informers, kind string, of client.Object, c clock.WithTicker) {
	again := c.NewTicker(awaitEvery)
	defer again.Stop()
	for ctx.Err() == nil {
		informer, err := objects.GetInformer(ctx, of, cache.BlockUntilSynced(false))
		var registration toolscache.ResourceEventHandlerRegistration
		if err == nil {
			registration, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(obj any) { t.look(ctx, kind, obj, false) },
				UpdateFunc: func(_, obj any) { t.look(ctx, kind, obj, false) },
				DeleteFunc: func(obj any) { t.look(ctx, kind, obj, true) },
			})
		}
		if err == nil {
			<-ctx.Done()
			_ = informer.RemoveEventHandler(registration) // It fails when the cache has stopped before.
			return
		}
		select {
		case <-ctx.Done():
		case <-again.C():
		}
	}
}

func (t *Teller) look(ctx context.Context, kind string, obj any, gone bool) {
	if unknown, is := obj.(toolscache.DeletedFinalStateUnknown); is {
		obj = unknown.Obj
	}
	o, is := obj.(client.Object)
	if !is {
		return
	}
	fields := newer.Fields(o)
	if !t.note(kind, o.GetUID(), fields, gone) {
		return
	}
	klog.FromContext(ctx).Info("An object is not followed: a newer program wrote what this one does not know",
		"kind", kind, "object", klog.KObj(o), "fields", fields)
	t.recorder.Event(o, corev1.EventTypeWarning, "NotFollowed", "Nothing new begins by it: "+newer.Check(o).Error())
}

// note counts an object with such fields, or without, and reports whether they are to be told.
func (t *Teller) note(kind string, uid types.UID, fields string, gone bool) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told[kind] == nil {
		t.told[kind] = map[types.UID]string{}
	}
	news = !gone && fields != "" && t.told[kind][uid] != fields
	if gone || fields == "" {
		delete(t.told[kind], uid)
	} else {
		t.told[kind][uid] = fields
	}
	t.gauge.WithLabelValues(kind).Set(float64(len(t.told[kind])))
	return news
}
