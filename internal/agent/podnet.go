package agent

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/nodestatus"
	"github.com/everynode/everynode/internal/proxy"
)

// Withdraw takes back what earlier runs of the agent made on this machine and what its configuration now leaves to
// somebody else: the pod network, the rules of Services, and the addresses of the name server.
func (a *Agent) Withdraw(ctx context.Context) error {
	if a.cfg.ForeignNetwork {
		if err := network.Leave(ctx, network.DefaultConfDir); err != nil {
			return fmt.Errorf("leave the pod network to somebody else: %w", err)
		}
	}
	if a.cfg.ForeignServices {
		if err := proxy.Leave(ctx); err != nil {
			return fmt.Errorf("leave services to somebody else: %w", err)
		}
	}
	if !a.namesOwn() {
		if err := network.HoldAddresses(nil); err != nil {
			return fmt.Errorf("leave the answering of names to somebody else: %w", err)
		}
	}
	return nil
}

// networkCondition says how the pod network is; nil where somebody else keeps it, who has a say about it then.
func (a *Agent) networkCondition(n *node) func() (nodestatus.Condition, bool) {
	if a.cfg.ForeignNetwork {
		return nil
	}
	return func() (nodestatus.Condition, bool) {
		if n.network == nil {
			return nodestatus.Condition{}, false
		}
		state := n.network.State()
		if state.Problem != nil {
			return nodestatus.Condition{Reason: "PodNetworkNotReady", Message: state.Problem.Error()}, true
		}
		return nodestatus.Condition{OK: true, Reason: "PodNetworkReady",
			Message: "the paths to the pods of other nodes are there"}, state.Known
	}
}

// followInterval is how often the node looks where the API servers are.
const followInterval = 10 * time.Second

// followServers keeps where they are, until ctx ends.
func (n *node) followServers(ctx context.Context) {
	for {
		n.identity.Learn(ctx, n.sources.APIServers())
		select {
		case <-ctx.Done():
			return
		case <-n.clock.After(followInterval):
		}
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
