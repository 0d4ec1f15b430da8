package agent

import (
	"context"
	"net/netip"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/remember"
)

// networksFile, in the data folder, has what the node knows of the networks of all nodes.
const networksFile = "networks.jsonl"

// newNetwork makes what connects the node's pods with those of others, and what keeps for its next start where these
// are; nil if that is left to somebody else.
func (a *Agent) newNetwork(ctx context.Context, n *node, identity *join.Identity) (*network.Network, error) {
	if a.cfg.ForeignNetwork {
		return nil, nil
	}
	allNodes, err := network.AllNodes(identity.RESTConfig())
	if err != nil {
		return nil, err
	}
	keeper, known, err := remember.NewNetworkKeeper(filepath.Join(a.cfg.DataDir, networksFile), func() *remember.Networks {
		now := remember.Networks(n.network.Known())
		return &now
	}, a.clk)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Pods of other nodes are not reached before the API server answers")
	}
	n.networkKeeper = keeper
	return network.New(network.Config{
		NodeName: a.cfg.NodeName, AllNodes: allNodes, Own: n.sources.Node, Mode: a.cfg.NetworkMode, Changed: n.reporter.Check,
		Known: (*network.Known)(known), Learned: keeper.Note,
		APIServers: func() []netip.AddrPort { return append(n.sources.APIServers(), addressOf(a.cfg.Server)...) },
	})
}
