package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/datadir"
)

// supervisorPatience is how long a supervisor may take to stop its cluster.
const supervisorPatience = 90 * time.Second

// dataEntries is everything that the parts of a cluster keep in its data dir.
// Nothing else is removed by a purge: a user may have named a folder that holds
// more than the cluster.
var dataEntries = []string{
	"kubeconfig", "pki", "etcd", "encryption.yaml", "logs", "nodes", "examples", "registries", "server.lock", "members.json", "peers", "encryption-config.yaml", "servers",
	datadir.WrittenFile, "restore-unfinished", "backup", "up.log", "nodes.wanted", "local.json", "local.lock",
}

// Down stops the cluster of a data dir, whoever started it, and removes
// everything of it but its data; with purge the data too.
func Down(ctx context.Context, dataDir string, purge bool, report Report) error {
	if _, err := os.Stat(statePath(dataDir)); errors.Is(err, fs.ErrNotExist) {
		report(Event{Kind: EventNote, Text: "No cluster is in " + dataDir + "; there is nothing to stop."})
		return nil
	}
	state, err := loadState(dataDir)
	if err != nil {
		return err
	}
	if err := mayStop(state); err != nil {
		return err
	}
	held, err := takeOver(ctx, dataDir, report)
	if err != nil {
		return err
	}
	defer held.release()
	if state, err = loadState(dataDir); err != nil || state == nil {
		return err
	}
	if state.Phase != PhaseStopped {
		if err := cleanAfterCrash(ctx, state, report); err != nil {
			return err
		}
	}
	if purge {
		return report.step("purge", func() (string, error) { return dataDir + " is removed", removeData(dataDir) })
	}
	report(Event{Kind: EventNote, Text: "The cluster is stopped. Its data stays in " + dataDir + "; everynode up starts it again."})
	return nil
}

// mayStop refuses before anything is touched what would fail in the middle.
func mayStop(s *State) error {
	if s.Plan.Runtime == RuntimeContainerd && os.Geteuid() != 0 {
		return errors.New("this cluster has real nodes, which only root can stop; run it with sudo")
	}
	return nil
}

// takeOver gets the lock of a data dir; a supervisor that holds it is told to
// stop its cluster, and is killed if it does not.
func takeOver(ctx context.Context, dataDir string, report Report) (*lock, error) {
	held, err := acquireLock(dataDir)
	if !errors.Is(err, errLocked) {
		return held, err
	}
	err = report.step("stop", func() (string, error) {
		held, err = stopSupervisor(ctx, dataDir)
		return "pods, nodes and control plane have ended", err
	})
	return held, err
}

func stopSupervisor(ctx context.Context, dataDir string) (*lock, error) {
	waiting, cancel := context.WithTimeout(ctx, supervisorPatience)
	defer cancel()
	var told Process
	for {
		held, err := acquireLock(dataDir)
		if err == nil {
			// It gave the lock back, and has only to end.
			if told.waitGone(waiting) != nil {
				err = told.kill(ctx)
			}
			return held, err
		}
		if !errors.Is(err, errLocked) {
			return nil, err
		}
		// The state is read again and again: the supervisor may only just have
		// taken the lock, and not have written down who it is.
		state, err := loadState(dataDir)
		if err != nil {
			return nil, err
		}
		if state != nil && state.Supervisor != told && state.Supervisor.alive() {
			told = state.Supervisor
			if err := told.signal(unix.SIGTERM); err != nil {
				return nil, err
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-waiting.Done():
			if err := told.kill(ctx); err != nil {
				return nil, fmt.Errorf("the supervisor does not stop: %w", err)
			}
			return acquireLock(dataDir)
		}
	}
}

// removeData removes a cluster's files, the state last: as long as it is there,
// another try finds the rest.
func removeData(dataDir string) error {
	for _, name := range dataEntries {
		// With what a process that was killed had not yet put in its place.
		unfinished, err := filepath.Glob(filepath.Join(dataDir, "."+name+"[.\\-]*"))
		for _, path := range append(unfinished, filepath.Join(dataDir, name)) {
			err = errors.Join(err, os.RemoveAll(path))
		}
		if err != nil {
			return fmt.Errorf("remove the cluster's data: %w", err)
		}
	}
	err := os.Remove(dataDir)
	if errors.Is(err, unix.ENOTEMPTY) {
		others, _ := filepath.Glob(filepath.Join(dataDir, "*"))
		return fmt.Errorf("%s holds files that are not of the cluster; they were left: %s", dataDir, strings.Join(others, ", "))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the data dir: %w", err)
	}
	return nil
}
