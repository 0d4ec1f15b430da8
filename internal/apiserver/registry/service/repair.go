package service

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver/registry/service/plan"
	"github.com/everynode/everynode/internal/network/servicenetwork"
)

// repairEvery is how often what is written of addresses and node ports is compared
// with the Services. Writes keep both in step; what differs was made by something
// else, such as an older version or a hand in the database.
const repairEvery = 3 * time.Minute

// mender corrects what is written of names, each in one step, unless something is another by then.
type mender interface {
	// ShowAgain writes what is kept beside a name that an object holds, in place of what has this revision.
	ShowAgain(ctx context.Context, obj runtime.Object, name string, revision int64) error
	// Take has an object hold a name that is free, and Free has nobody hold one that is held for an object that there is
	// not.
	Take(ctx context.Context, obj runtime.Object, name string) error
	Free(ctx context.Context, name, holder, objectName string) error
	// Discard deletes an object whose name nobody holds.
	Discard(ctx context.Context, obj runtime.Object, name string) error
}

// Repair compares what Services hold with what is written of it, and with the IPAddresses that show it.
type Repair struct {
	parts    Parts
	networks *networks
	// checked is closed after the first time; no Service is written before.
	checked chan struct{}
}

// Start compares once, as often as it takes, and then goes on in the background until ctx ends.
func (r *Repair) Start(ctx context.Context) error {
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: r.parts.Client.CoreV1().Events("")})
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
			if err := r.mend(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not compare IPAddresses with Services; it is tried again")
			}
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
	networks, err := r.networks.list(ctx)
	if err != nil {
		return err
	}
	inNetwork := func(ip netip.Addr) bool { return servicenetwork.Contain(networks, ip) }
	return r.parts.Reserved.Repair(
		ctx,
		func(objects []runtime.Object, holders map[string]string) (map[string]runtime.Object, []string) {
			owners, findings := plan.Assign(servicesOf(objects), holders, inNetwork)
			for _, f := range findings {
				recorder.Event(f.Service, corev1.EventTypeWarning, f.Reason, f.Message)
			}
			out := make(map[string]runtime.Object, len(owners))
			for name, s := range owners {
				out[name] = s
			}
			free := plan.Abandoned(owners, holders)
			for _, name := range free {
				klog.FromContext(ctx).Info("What no Service holds any more is free again", "name", name, "held by", holders[name])
			}
			return out, free
		},
	)
}

func servicesOf(objects []runtime.Object) []*corev1.Service {
	services := make([]*corev1.Service, 0, len(objects))
	for _, o := range objects {
		services = append(services, o.(*corev1.Service))
	}
	return services
}

// mend makes IPAddresses agree with who holds addresses. It stands in nobody's way: that each address is held once does
// not depend on it.
func (r *Repair) mend(ctx context.Context) error {
	services, err := r.parts.Reserved.List(ctx)
	if err != nil {
		return err
	}
	objects, err := r.parts.ReservedAddresses.List(ctx)
	if err != nil {
		return err
	}
	held, err := r.parts.Reserved.AllHolders(ctx, plan.Addresses)
	if err != nil {
		return err
	}
	addresses := make([]*networkingv1.IPAddress, 0, len(objects))
	for _, o := range objects {
		addresses = append(addresses, o.(*networkingv1.IPAddress))
	}
	for _, m := range plan.Mend(servicesOf(services), addresses, held) {
		klog.FromContext(ctx).V(1).Info(
			"Correcting what shows whose an address is", "name", m.Name, "do", m.Do, "held by", m.Holder,
		)
		if err := r.correct(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repair) correct(ctx context.Context, m plan.Mending) error {
	switch m.Do {
	case plan.Show:
		was := int64(0)
		if m.Address != nil {
			version, err := strconv.ParseInt(m.Address.ResourceVersion, 10, 64)
			if err != nil {
				return fmt.Errorf("read the version of IPAddress %s: %w", m.Address.Name, err)
			}
			was = version
		}
		return r.parts.Reserved.ShowAgain(ctx, m.Service, m.Name, was)
	case plan.Take:
		return r.parts.ReservedAddresses.Take(ctx, m.Address, m.Name)
	case plan.Discard:
		return r.parts.ReservedAddresses.Discard(ctx, m.Address, m.Name)
	case plan.Free:
		ip, _ := plan.Parse(m.Name)
		return r.parts.ReservedAddresses.Free(ctx, m.Name, m.Holder, ip.String())
	}
	return nil
}
