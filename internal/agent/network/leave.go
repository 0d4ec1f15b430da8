package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Leave takes back what this package made on the machine in an earlier run, so
// that somebody else can connect the pods: the CNI configuration in the folder
// (DefaultConfDir if empty), paths, the tunnel and rules. Addresses that
// HoldAddresses gave remain.
func Leave(ctx context.Context, confDir string) error {
	if confDir == "" {
		confDir = DefaultConfDir
	}
	if err := os.Remove(filepath.Join(confDir, confName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the CNI configuration: %w", err)
	}
	m, err := newMachine()
	if err != nil {
		m = machine{} // Without the command there are no rules.
	}
	paths, err := m.paths()
	failures := []error{err}
	for to := range paths {
		failures = append(failures, m.removePath(to))
	}
	failures = append(failures, m.setTunnel(tunnel{}))
	if m.nft != "" {
		failures = append(failures, m.applyRules(ctx, noRuleset()))
	}
	return errors.Join(failures...)
}
