package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/apiserver/resource"
)

// maxTries is how often a write is tried that others snatch addresses or ports from.
const maxTries = 50

// Extend makes the storage give out addresses from the CIDR, and node ports. It returns
// what checks those that are given out.
func Extend(s *resource.Storage, reservations Reservations, client kubernetes.Interface, cidr *net.IPNet) (*Repair, error) {
	prefix, err := netip.ParsePrefix(cidr.String())
	if err != nil {
		return nil, fmt.Errorf("read the service CIDR %s: %w", cidr, err)
	}
	main, ok := s.Main.(*resource.REST)
	if !ok || reservations == nil {
		return nil, errors.New("the storage of Services cannot reserve addresses")
	}
	repair := &Repair{reservations: reservations, client: client, cidr: prefix.Masked(), checked: make(chan struct{})}
	a := &allocator{reservations: reservations, cidr: prefix.Masked(), checked: repair.checked}
	s.Store.BeginCreate, s.Store.BeginUpdate = a.beginCreate, a.beginUpdate
	s.Main = &REST{main}
	return repair, nil
}

// REST serves Services. It writes again, with another choice, what lost an address or a
// node port to a write that was quicker, here or in another server.
type REST struct{ *resource.REST }

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (created runtime.Object, err error) {
	err = whileTaken(ctx, func() error {
		created, err = r.REST.Create(ctx, obj.DeepCopyObject(), validate, options)
		return err
	})
	return created, err
}

// Update implements rest.Updater.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions) (updated runtime.Object, created bool, err error) {
	err = whileTaken(ctx, func() error {
		updated, created, err = r.REST.Update(ctx, name, info, create, update, force, options)
		return err
	})
	return updated, created, err
}

// whileTaken repeats a write as long as somebody else takes what it chose.
func whileTaken(ctx context.Context, write func() error) error {
	for range maxTries {
		err := write()
		var taken interface{ Taken() (name, holder string) }
		if !errors.As(err, &taken) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return apierrors.NewTooManyRequests("other writes take the addresses and node ports of Services faster than this one can; try again", 1)
}
