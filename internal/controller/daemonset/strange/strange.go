// Package strange tells people of objects of Everynode's own kinds that hold what this program does not know, since a
// newer one wrote it: nobody follows them here.
package strange

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
)

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Event(object runtime.Object, eventtype, reason, message string)
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

// Look looks at an object of any kind that has been read, or is gone, and tells of it where there is news. Of
// NodeStartups those tell who open nodes.
func (t *Teller) Look(log klog.Logger, obj any, gone bool) {
	o, kind := ownKind(obj)
	if o == nil {
		return
	}
	fields := newer.Fields(o)
	if !t.note(kind, o.GetUID(), fields, gone) {
		return
	}
	log.Info("An object is not followed: a newer program wrote what this one does not know", "kind", kind, "object",
		klog.KObj(o), "fields", fields)
	t.recorder.Event(o, corev1.EventTypeWarning, "NotFollowed", "Nothing new begins by it: "+newer.Check(o).Error())
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
