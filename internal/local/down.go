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

	"github.com/everynode/everynode/internal/files/datadir"
	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/process"
	"github.com/everynode/everynode/internal/local/progress"
)

// supervisorPatience is how long a supervisor may take to stop its cluster.
const supervisorPatience = 90 * time.Second

// dataEntries is everything that the parts of a cluster keep in its data dir.
// Nothing else is removed by a purge: a user may have named a folder that holds
// more than the cluster.
var dataEntries = []string{
	"kubeconfig", "pki", "etcd", "encryption.yaml", "logs", "nodes", "examples", "registries", "server.lock",
	"members.json", "peers", "encryption-config.yaml", "servers",
	datadir.WrittenFile, "restore-unfinished", "backup", "up.log", "nodes.wanted", "local.json", "local.lock",
}

// Down stops the cluster of a data dir, whoever started it, and removes
// everything of it but its data; with purge the data too.
func Down(ctx context.Context, dataDir string, purge bool, report progress.Report) error {
	if _, err := os.Stat(layout.StatePath(dataDir)); errors.Is(err, fs.ErrNotExist) {
		report(progress.Event{Kind: progress.Note, Text: "No cluster is in " + dataDir + "; there is nothing to stop."})
		return nil
	}
	state, err := layout.Load(dataDir)
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
	if state, err = layout.Load(dataDir); err != nil || state == nil {
		return err
	}
	if state.Phase != layout.PhaseStopped {
		if err := cleanAfterCrash(ctx, state, report); err != nil {
			return err
		}
	}
	if purge {
		return report.Step("purge", func() (string, error) { return dataDir + " is removed", removeData(dataDir) })
	}
	report(progress.Event{
		Kind: progress.Note,
		Text: "The cluster is stopped. Its data stays in " + dataDir + "; everynode up starts it again.",
	})
	return nil
}

// mayStop refuses before anything is touched what would fail in the middle.
func mayStop(s *layout.State) error {
	if s.Plan.Runtime == layout.RuntimeContainerd && os.Geteuid() != 0 {
		return errors.New("this cluster has real nodes, which only root can stop; run it with sudo")
	}
	return nil
}

// takeOver gets the lock of a data dir; a supervisor that holds it is told to
// stop its cluster, and is killed if it does not.
func takeOver(ctx context.Context, dataDir string, report progress.Report) (*lock, error) {
	held, err := acquireLock(dataDir)
	if !errors.Is(err, errLocked) {
		return held, err
	}
	err = report.Step("stop", func() (string, error) {
		held, err = stopSupervisor(ctx, dataDir)
		return "pods, nodes and control plane have ended", err
	})
	return held, err
}

func stopSupervisor(ctx context.Context, dataDir string) (*lock, error) {
	waiting, cancel := context.WithTimeout(ctx, supervisorPatience)
	defer cancel()
	var told process.Process
	for {
		held, err := acquireLock(dataDir)
		if err == nil {
			// It gave the lock back, and has only to end.
			if told.WaitGone(waiting) != nil {
				err = told.Kill(ctx)
			}
			return held, err
		}
		if !errors.Is(err, errLocked) {
			return nil, err
		}
		// The state is read again and again: the supervisor may only just have
		// taken the lock, and not have written down who it is.
		state, err := layout.Load(dataDir)
		if err != nil {
			return nil, err
		}
		if state != nil && state.Supervisor != told && state.Supervisor.Alive() {
			told = state.Supervisor
			if err := told.Signal(unix.SIGTERM); err != nil {
				return nil, err
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-waiting.Done():
			if err := told.Kill(ctx); err != nil {
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
		return fmt.Errorf("%s holds files that are not of the cluster; they were left: %s", dataDir,
			strings.Join(others, ", "))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the data dir: %w", err)
	}
	return nil
}
