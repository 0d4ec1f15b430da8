package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/everynode/everynode/internal/images"
	"github.com/everynode/everynode/internal/local/layout"
)

// ImportImages puts the images of an archive (docker save, or an OCI image
// layout) into the containerd of the named nodes of a running cluster, or of all
// if none is named. imported is told what each node got.
func ImportImages(ctx context.Context, dataDir, archive string, nodes []string,
	imported func(node string, images []string)) error {
	state, err := layout.Load(dataDir)
	if err != nil {
		return err
	}
	if state == nil || state.Phase == layout.PhaseStopped || !state.Supervisor.Alive() {
		return fmt.Errorf("no cluster runs in %s; start one with everynode up, or name its --data-dir", dataDir)
	}
	if state.Plan.Runtime == layout.RuntimeSimulated {
		return errors.New("the nodes of this cluster are simulated and run no images; any image name works on them")
	}
	if os.Geteuid() != 0 {
		return errors.New("the nodes belong to root; run it with sudo")
	}
	if _, err := os.Stat(archive); err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	targets, err := importTargets(state, nodes)
	if err != nil {
		return err
	}
	for _, name := range targets {
		names, err := importInto(ctx, state.Nodes[name], archive)
		if err != nil {
			return fmt.Errorf("import into %s: %w", name, err)
		}
		imported(name, names)
	}
	return nil
}

// importTargets are the nodes to import into, in the order of the plan.
func importTargets(s *layout.State, asked []string) ([]string, error) {
	var targets []string
	for _, n := range s.Plan.Nodes {
		if len(asked) == 0 || slices.Contains(asked, n.Name) {
			targets = append(targets, n.Name)
		}
	}
	for _, name := range asked {
		if !slices.Contains(targets, name) {
			return nil, fmt.Errorf("the cluster has no node %q", name)
		}
	}
	return targets, nil
}

func importInto(ctx context.Context, node layout.NodeState, archive string) ([]string, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	store, err := images.OpenStore(socketOf(node.Init), node.Snapshotter)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	return store.Import(ctx, f)
}
