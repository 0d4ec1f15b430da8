package service

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver/registry/service/plan"
)

// repairEvery is how often what is written of addresses and node ports is compared
// with the Services. Writes keep both in step; what differs was made by something
// else, such as an older version or a hand in the database.
const repairEvery = 3 * time.Minute

// Repair compares what Services hold with what is written of it.
type Repair struct {
	reservations Reservations
	client       kubernetes.Interface
	cidr         netip.Prefix
	// checked is closed after the first time; no Service is written before.
	checked chan struct{}
}

// Start compares once, as often as it takes, and then goes on in the background until ctx ends.
func (r *Repair) Start(ctx context.Context) error {
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: r.client.CoreV1().Events("")})
	recorder := events.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: "ipallocator-repair-controller"})
	for {
		err := r.once(ctx, recorder)
		if err == nil {
			break
		}
		klog.FromContext(ctx).Error(err, "Could not check the addresses of Services; none is written until that works")
		select {
		case <-ctx.Done():
			events.Shutdown()
			return nil
		case <-time.After(time.Second):
		}
	}
	close(r.checked)
	go func() {
		defer events.Shutdown()
		for {
			select {
			case <-ctx.Done():
				return
			// Several servers that were started together need not do it together.
			case <-time.After(repairEvery + rand.N(repairEvery/4)):
			}
			if err := r.once(ctx, recorder); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not check the addresses of Services; it is tried again")
			}
		}
	}()
	return nil
}

func (r *Repair) once(ctx context.Context, recorder record.EventRecorder) error {
	return r.reservations.Repair(ctx, func(objects []runtime.Object, holders map[string]string) map[string]runtime.Object {
		services := make([]*corev1.Service, 0, len(objects))
		for _, o := range objects {
			services = append(services, o.(*corev1.Service))
		}
		owners, findings := plan.Assign(services, holders, r.cidr)
		for _, f := range findings {
			recorder.Event(f.Service, corev1.EventTypeWarning, f.Reason, f.Message)
		}
		out := make(map[string]runtime.Object, len(owners))
		for name, s := range owners {
			out[name] = s
		}
		for name, holder := range holders {
			if owners[name] == nil {
				klog.FromContext(ctx).Info("What no Service holds any more is free again", "name", name, "held by", holder)
			}
		}
		return out
	})
}
