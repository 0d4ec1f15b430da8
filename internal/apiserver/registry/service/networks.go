package service

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/internal/apiserver/registry/service/plan"
	"github.com/everynode/everynode/internal/network/servicenetwork"
)

// Objects reads all objects of a kind as the database has them now.
type Objects interface {
	List(ctx context.Context) ([]runtime.Object, error)
	// Key is that of an object in the database.
	Key(name string) string
}

// networks are where the addresses of Services come from: the ServiceCIDRs.
type networks struct {
	cidrs      Objects
	configured netip.Prefix
}

func (n *networks) list(ctx context.Context) ([]servicenetwork.Network, error) {
	objects, err := n.cidrs.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the ServiceCIDRs: %w", err)
	}
	cidrs := make([]*networkingv1.ServiceCIDR, 0, len(objects))
	for _, o := range objects {
		cidrs = append(cidrs, o.(*networkingv1.ServiceCIDR))
	}
	return servicenetwork.Of(cidrs, n.configured), nil
}

// errMoved says that an address was chosen of a network that has closed since.
var errMoved error = moved{errors.New("the network of an address is closed")}

type moved struct{ error }

// Changed marks the error as one after which it is chosen again.
func (moved) Changed() string { return "servicecidrs" }

// guard has a Service take an address only while the ServiceCIDR, which it is of, stays as it is. When somebody wants
// that one to go, what has addresses of it is written by then.
func (n *networks) guard(ctx context.Context, _ runtime.Object, names []string) (map[string]int64, error) {
	var addresses []netip.Addr
	for _, name := range names {
		if ip, _ := plan.Parse(name); ip.IsValid() {
			addresses = append(addresses, ip)
		}
	}
	if len(addresses) == 0 {
		return nil, nil
	}
	list, err := n.list(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for _, ip := range addresses {
		network, ok := servicenetwork.Covering(list, ip)
		if !ok {
			return nil, errMoved
		}
		version := int64(0)
		if network.Version != "" {
			if version, err = strconv.ParseInt(network.Version, 10, 64); err != nil {
				return nil, fmt.Errorf("read the version of the ServiceCIDR %s: %w", network.CIDR, err)
			}
		}
		out[n.cidrs.Key(network.CIDR)] = version
	}
	return out, nil
}

// ranges names the networks of which addresses can be asked for.
func ranges(list []servicenetwork.Network) string {
	var out []string
	for _, n := range list {
		if n.Open {
			out = append(out, n.Prefix.String())
		}
	}
	return strings.Join(out, ", ")
}
