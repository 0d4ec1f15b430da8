// Package entry is how a node gets to its cluster and to its container runtime: which address it has, with which client
// it asks the API, and where the servers are.
package entry

import (
	"context"
	"path/filepath"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/ownaddress"
)

// addressFile is the name of the file in the data folder that keeps the node's last address.
const addressFile = "node-address"

// Addresses returns the node's addresses, as they were last until Look or Run is called.
func Addresses(ctx context.Context, c *config.Config) (*ownaddress.Addresses, error) {
	return ownaddress.New(ctx, ownaddress.Config{Fixed: c.NodeIPs, Server: c.Server,
		File: filepath.Join(c.DataDir, addressFile)})
}

// FindAddress looks where the node is. One that has joined before goes on without an answer: with the address that it
// had last, or without one until there is one.
func FindAddress(ctx context.Context, dataDir string, addresses *ownaddress.Addresses) error {
	err := addresses.Look(ctx)
	if err != nil && len(addresses.List()) == 0 && !join.Joined(dataDir) {
		return err
	}
	return nil
}
