package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/simulator/illness"
)

// addFaultsFlag binds --faults and returns the file's name.
func addFaultsFlag(f *pflag.FlagSet) *string {
	return f.String(
		"faults", "", "file that says what is wrong with simulated nodes and their pods, to try how changes go there",
	)
}

// readFaults reads the file of --faults, if one is named.
func readFaults(path string) (*illness.Plan, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read --faults: %w", err)
	}
	plan, err := illness.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("--faults %s: %w", path, err)
	}
	return plan, nil
}

// addFaults hands the file on to the control plane of a local cluster. It is read here too, so that what is wrong with
// it is said at once.
func addFaults(o *layout.Options, path string) error {
	if path == "" {
		return nil
	}
	if o.Runtime != layout.RuntimeSimulated {
		return errors.New("--faults is about simulated nodes; give --runtime simulated as well")
	}
	if _, err := readFaults(path); err != nil {
		return err
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("find --faults: %w", err)
	}
	o.ServerFlags = append(o.ServerFlags, "--faults="+whole)
	return nil
}
