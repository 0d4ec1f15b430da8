package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/apiserver/registry/service/plan"
	"github.com/everynode/everynode/internal/apiserver/resource"
)

// maxTries is how often a write is tried that others snatch addresses or ports from.
const maxTries = 50

// Parts are the kinds that addresses are about, with what the database knows of them.
type Parts struct {
	Services, Addresses, CIDRs *resource.Storage
	// Reserved are the names that Services hold, ReservedAddresses those that IPAddresses hold by themselves.
	Reserved, ReservedAddresses Reservations
	// Networks are the ServiceCIDRs in the database.
	Networks Objects
	// Encode makes of an IPAddress what is stored of it.
	Encode func(key string, obj runtime.Object) ([]byte, error)
	// Client tells people by events.
	Client kubernetes.Interface
	// CIDR is the network that the server was started with.
	CIDR *net.IPNet
}

// Extend makes the storages give out addresses of the ServiceCIDRs, show them, and give out node ports. It returns what
// checks those that are given out.
func Extend(p Parts) (*Repair, error) {
	prefix, err := netip.ParsePrefix(p.CIDR.String())
	if err != nil {
		return nil, fmt.Errorf("read the service CIDR %s: %w", p.CIDR, err)
	}
	services, addresses, cidrs := main(p.Services), main(p.Addresses), main(p.CIDRs)
	if services == nil || addresses == nil || cidrs == nil || p.Reserved == nil || p.ReservedAddresses == nil ||
		p.Networks == nil {
		return nil, errors.New("the storage of Services cannot reserve addresses")
	}
	nets := &networks{cidrs: p.Networks, configured: prefix.Masked()}
	p.Reserved.GuardNames(nets.guard)
	p.Reserved.ShowNames(p.show)
	repair := &Repair{parts: p, networks: nets, checked: make(chan struct{})}
	a := &allocator{reservations: p.Reserved, networks: nets, checked: repair.checked}
	p.Services.Store.BeginCreate, p.Services.Store.BeginUpdate = a.beginCreate, a.beginUpdate
	p.Services.Main = &REST{services}
	p.Addresses.Main = &AddressREST{addresses, p.ReservedAddresses}
	p.CIDRs.Main = &CIDRREST{cidrs, prefix.Masked()}
	return repair, nil
}

func main(s *resource.Storage) *resource.REST {
	if s == nil {
		return nil
	}
	out, _ := s.Main.(*resource.REST)
	return out
}

// show is the IPAddress that is kept beside an address of a Service, as it is stored.
func (p Parts) show(holder runtime.Object, name string) (key string, stored []byte, err error) {
	ip, _ := plan.Parse(name)
	if !ip.IsValid() {
		return "", nil, nil
	}
	key = p.ReservedAddresses.Key(ip.String())
	if holder == nil {
		return key, nil, nil
	}
	shown := plan.Shown(holder.(*corev1.Service), ip)
	rest.FillObjectMetaSystemFields(shown)
	stored, err = p.Encode(key, shown)
	return key, stored, err
}

// REST serves Services. It writes again, with another choice, what lost an address or a
// node port to a write that was quicker, here or in another server, or to the end of a ServiceCIDR.
type REST struct{ *resource.REST }

// Create implements rest.Creater.
func (r *REST) Create(
	ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (created runtime.Object, err error) {
	err = whileTaken(ctx, func() error {
		created, err = r.REST.Create(ctx, obj.DeepCopyObject(), validate, options)
		return err
	})
	return created, err
}

// Update implements rest.Updater.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, force bool,
	options *metav1.UpdateOptions) (updated runtime.Object, created bool, err error) {
	err = whileTaken(ctx, func() error {
		updated, created, err = r.REST.Update(ctx, name, info, create, update, force, options)
		return err
	})
	return updated, created, err
}

// whileTaken repeats a write as long as somebody else takes what it chose, or takes it away.
func whileTaken(ctx context.Context, write func() error) error {
	for range maxTries {
		err := write()
		var changed interface{ Changed() string }
		if !isTaken(err) && !errors.As(err, &changed) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return apierrors.NewTooManyRequests(
		"other writes take the addresses and node ports of Services faster than this one can; try again", 1,
	)
}
