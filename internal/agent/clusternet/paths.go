package clusternet

import (
	"context"
	"net/netip"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/remember"
)

// networksFile, in the data folder, has what the node knows of the networks of all nodes.
const networksFile = "networks.jsonl"

// NewNetwork makes what connects the node's pods with those of others, and what keeps for its next start where these
// are; nil if that is left to somebody else.
func (c Config) NewNetwork(
	ctx context.Context, api *rest.Config,
) (*network.Network, *remember.NetworkKeeper, error) {
	if c.ForeignNetwork {
		return nil, nil, nil
	}
	allNodes, err := network.AllNodes(api)
	if err != nil {
		return nil, nil, err
	}
	var made *network.Network
	keeper, known, err := remember.NewNetworkKeeper(filepath.Join(c.DataDir, networksFile), func() *remember.Networks {
		now := remember.Networks(made.Known())
		return &now
	}, c.Clock)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Pods of other nodes are not reached before the API server answers")
	}
	made, err = network.New(network.Config{
		NodeName: c.NodeName, AllNodes: allNodes, Own: c.Sources.Node, Mode: c.NetworkMode, Changed: c.Changed,
		Known: (*network.Known)(known), Learned: keeper.Note,
		APIServers: func() []netip.AddrPort { return append(c.Sources.APIServers(), addressOf(c.Server)...) },
	})
	return made, keeper, err
}
