// Package strange tells people of objects of Everynode's own kinds that hold what this program does not know, since a
// newer one wrote it: nobody follows them here.
package strange

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
)

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Event(object runtime.Object, eventtype, reason, message string)
}

// Speaker has the conditions of an object say that it is not followed, where they say something else.
type Speaker interface {
	SayNotFollowed(ctx context.Context, o runtime.Object) error
}

// sayEvery is the time between two tries.
const sayEvery = 5 * time.Second

// Say has the conditions of an object say it, and tries for as long as ctx lasts. The error is that of the last try.
func Say(ctx context.Context, by Speaker, o runtime.Object) (err error) {
	// What ends the tries is no news.
	_ = wait.PollUntilContextCancel(ctx, sayEvery, true, func(ctx context.Context) (bool, error) {
		failed := by.SayNotFollowed(ctx, o)
		if failed == nil || ctx.Err() == nil {
			err = failed
		}
		return failed == nil, nil
	})
	return err
}

// Teller tells, in one goroutine.
type Teller struct {
	recorder Recorder
	gauge    *prometheus.GaugeVec
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

// Look looks at an object of any kind that has been read, or is gone, tells of it where there is news, and reports
// whether there is. Of NodeStartups those tell who open nodes.
func (t *Teller) Look(log klog.Logger, obj any, gone bool) (news bool) {
	o, kind := ownKind(obj)
	if o == nil {
		return false
	}
	fields := newer.Fields(o)
	if !t.note(kind, o.GetUID(), fields, gone) {
		return false
	}
	log.Info("An object is not followed: a newer program wrote what this one does not know", "kind", kind, "object",
		klog.KObj(o), "fields", fields)
	t.recorder.Event(o, corev1.EventTypeWarning, "NotFollowed", "Nothing new begins by it: "+newer.Check(o).Error())
	return true
}

// ownKind is an object of the kinds that are looked at, and its kind; nil for others.
func ownKind(obj any) (client.Object, string) {
	switch o := obj.(type) {
	case *v1alpha1.RolloutPolicy:
		return o, "RolloutPolicy"
	case *v1alpha1.DaemonSetRollout:
		return o, "DaemonSetRollout"
	case *v1alpha1.DaemonSetVariant:
		return o, "DaemonSetVariant"
	}
	return nil, ""
}

// note counts an object with such fields, or without, and reports whether they are to be told.
func (t *Teller) note(kind string, uid types.UID, fields string, gone bool) (news bool) {
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
