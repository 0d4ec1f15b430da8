package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/everynode/everynode/internal/files/wholefile"
	"github.com/everynode/everynode/internal/local/process"
)

// Phase says how far a cluster is.
type Phase string

const (
	// PhaseStarting is from the first thing made until the nodes are ready.
	PhaseStarting Phase = "starting"
	// PhaseReady is a cluster in use.
	PhaseReady Phase = "ready"
	// PhaseStopping is from the order to stop until nothing is left.
	PhaseStopping Phase = "stopping"
	// PhaseStopped is a cluster of which only files exist.
	PhaseStopped Phase = "stopped"
)

// StateVersion is the format of the state file.
const StateVersion = 1

// State is what the state file holds: the plan, and what exists of it. What is
// written before a step names things that may or may not exist; nothing exists
// that was not written before.
type State struct {
	Version    int             `json:"version"`
	Phase      Phase           `json:"phase"`
	Plan       Plan            `json:"plan"`
	BootID     string          `json:"bootID"`
	Supervisor process.Process `json:"supervisor,omitzero"`
	// Server is the control plane, or the first of several; Others are the others of these.
	Server process.Process            `json:"server,omitzero"`
	Others map[string]process.Process `json:"others,omitempty"`
	Nodes  map[string]NodeState       `json:"nodes,omitempty"`
}

// NodeState is what runs of one node. Init is process 1 of its namespaces; the
// others end with it.
type NodeState struct {
	Init        process.Process `json:"init,omitzero"`
	Containerd  process.Process `json:"containerd,omitzero"`
	Agent       process.Process `json:"agent,omitzero"`
	Snapshotter string          `json:"snapshotter,omitempty"`
}

// StatePath is the state file of a data dir.
func StatePath(dataDir string) string { return filepath.Join(dataDir, "local.json") }

// Load reads the state file; nil without error if there is none.
func Load(dataDir string) (*State, error) {
	path := StatePath(dataDir)
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("the cluster belongs to another user: %w; run it as that user, or with sudo", err)
	case err != nil:
		return nil, fmt.Errorf("read the cluster's state: %w; name the folder of a cluster with --data-dir", err)
	}
	return parseState(path, dataDir, raw)
}

// parseState is strict: a file that cannot be trusted is reported, and left
// for a person to look at, because it says what must be cleaned up.
func parseState(path, dataDir string, raw []byte) (*State, error) {
	broken := func(why string) error {
		return fmt.Errorf("state file %s is broken (%s); nothing was changed: repair it, or move it away once nothing of "+
			"the cluster runs", path, why)
	}
	var s State
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, broken(err.Error())
	}
	known := []Phase{PhaseStarting, PhaseReady, PhaseStopping, PhaseStopped}
	switch {
	case s.Version != StateVersion:
		return nil, broken(fmt.Sprintf("version %d, this program knows %d", s.Version, StateVersion))
	case !slices.Contains(known, s.Phase):
		return nil, broken(fmt.Sprintf("unknown phase %q", s.Phase))
	case s.Plan.ID != ClusterID(s.Plan.DataDir):
		return nil, broken("its id does not belong to its data dir")
	case s.Plan.DataDir != dataDir:
		return nil, broken("it is of data dir " + s.Plan.DataDir)
	}
	return &s, nil
}

// Save writes the state file so that a reader, or a crash, finds the old or
// the new one, whole.
func (s *State) Save() error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the cluster's state: %w", err)
	}
	return WriteFile(StatePath(s.Plan.DataDir), append(raw, '\n'), 0o600)
}

// WriteFile replaces a file atomically and durably.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	if err := wholefile.Write(path, mode, wholefile.Bytes(content)); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Ledger is the state file in use: every change is saved before it returns.
type Ledger struct {
	mu    sync.Mutex
	State State
}

// Update changes the state and saves it.
func (l *Ledger) Update(change func(*State)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.State)
	return l.State.Save()
}

// UpdateNode changes what is known of one node and saves it.
func (l *Ledger) UpdateNode(name string, change func(*NodeState)) error {
	return l.Update(func(s *State) {
		node := s.Nodes[name]
		change(&node)
		if s.Nodes == nil {
			s.Nodes = map[string]NodeState{}
		}
		s.Nodes[name] = node
	})
}

// Read returns a copy of the state.
func (l *Ledger) Read() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.State
	s.Others = maps.Clone(l.State.Others)
	s.Nodes = make(map[string]NodeState, len(l.State.Nodes))
	for name, node := range l.State.Nodes {
		s.Nodes[name] = node
	}
	return s
}

// Stopped forgets everything that ran.
func (s *State) Stopped() {
	s.Phase, s.Supervisor, s.Server, s.Others, s.Nodes = PhaseStopped, process.Process{}, process.Process{}, nil, nil
}
