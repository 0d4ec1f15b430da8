package clusternet

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/nodestatus"
	"github.com/everynode/everynode/internal/agent/ownaddress"
	"github.com/everynode/everynode/internal/agent/sources"
	"github.com/everynode/everynode/internal/network/proxy"
)

// Config is what these parts need of the node.
type Config struct {
	config.Config
	Sources   *sources.Sources
	Addresses *ownaddress.Addresses
	Clock     clock.WithTicker
	// Changed is called when the state of the network has changed.
	Changed func()
}

// Withdraw takes back what earlier runs of the agent made on this machine and what its configuration now leaves to
// somebody else: the pod network, the rules of Services, and the addresses of the name server.
func Withdraw(ctx context.Context, cfg *config.Config) error {
	if cfg.ForeignNetwork {
		if err := network.Leave(ctx, network.DefaultConfDir); err != nil {
			return fmt.Errorf("leave the pod network to somebody else: %w", err)
		}
	}
	if cfg.ForeignServices {
		if err := proxy.Leave(ctx); err != nil {
			return fmt.Errorf("leave services to somebody else: %w", err)
		}
	}
	if !namesOwn(cfg) {
		if err := network.HoldAddresses(nil); err != nil {
			return fmt.Errorf("leave the answering of names to somebody else: %w", err)
		}
	}
	return nil
}

// Condition says how the pod network is; nil where somebody else keeps it, who has a say about it then. The network
// may be made later, and is nil before.
func Condition(foreign bool, of func() *network.Network) func() (nodestatus.Condition, bool) {
	if foreign {
		return nil
	}
	return func() (nodestatus.Condition, bool) {
		made := of()
		if made == nil {
			return nodestatus.Condition{}, false
		}
		state := made.State()
		if state.Problem != nil {
			return nodestatus.Condition{Reason: "PodNetworkNotReady", Message: state.Problem.Error()}, true
		}
		return nodestatus.Condition{OK: true, Reason: "PodNetworkReady",
			Message: "the paths to the pods of other nodes are there"}, state.Known
	}
}

// addressOf is the address in the API server's URL, none if that has a name.
func addressOf(server string) []netip.AddrPort {
	parsed, err := url.Parse(server)
	if err != nil {
		return nil
	}
	at, err := netip.ParseAddrPort(parsed.Host)
	if err != nil {
		return nil
	}
	return []netip.AddrPort{at}
}
