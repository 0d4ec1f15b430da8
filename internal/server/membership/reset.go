package membership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/everynode/everynode/internal/files/wholefile"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/storage/etcd"
)

// Reset makes the server of a data directory, which must not run, the only one, with
// the data that it has.
func Reset(ctx context.Context, dataDir string, now time.Time) error {
	m, err := Read(dataDir)
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("%s holds no server that is one of several", dataDir)
	}
	if m.Left || m.Removed {
		return fmt.Errorf(
			"the server in %s left its cluster or was removed from it, and cannot be made a cluster of its own; restore a "+
				"backup, or reset a server that was not removed",
			dataDir,
		)
	}
	release, _, err := folder.Lock(dataDir)
	if err != nil {
		return err
	}
	defer release()
	if err := clearReset(dataDir); err != nil {
		return err
	}
	if !folder.HasDatabase(dataDir) {
		return fmt.Errorf("%s holds no database", dataDir)
	}
	database, work := filepath.Join(dataDir, "etcd"), filepath.Join(dataDir, folder.UnfinishedReset)
	size, err := folder.Size(database)
	if err == nil {
		err = folder.HaveRoom(dataDir, resetRoom*size)
	}
	if err == nil {
		err = os.Mkdir(work, 0o700)
	}
	made := filepath.Join(work, "made")
	if err == nil {
		err = etcd.Reset(ctx, database, work, made, now)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make a database of one server: %w", err), clearReset(dataDir))
	}
	return m.takeReset(dataDir, made)
}

// resetRoom is how many times the size of a database a reset may take: a copy, a snapshot of that, and as much as a
// restore of the snapshot.
const resetRoom = 5

// takeReset puts a database that is ready in the place of the one before.
func (m *File) takeReset(dataDir, made string) error {
	database, work := filepath.Join(dataDir, "etcd"), filepath.Join(dataDir, folder.UnfinishedReset)
	m.Known = nil
	err := m.Write(dataDir)
	if err == nil {
		err = folder.Sync(work)
	}
	if err == nil {
		err = os.Rename(database, filepath.Join(work, "before"))
	}
	if err == nil {
		err = os.Rename(made, database)
	}
	if err == nil {
		err = folder.Sync(dataDir)
	}
	if err != nil {
		return fmt.Errorf("put the new database in the place of the one before: %w", err)
	}
	return clearReset(dataDir)
}

// clearReset removes what a reset has left, and puts a database back that it had moved away and not replaced.
func clearReset(dataDir string) error {
	database, work := filepath.Join(dataDir, "etcd"), filepath.Join(dataDir, folder.UnfinishedReset)
	if !folder.Exists(work) {
		return nil
	}
	var err error
	if before := filepath.Join(work, "before"); !folder.Exists(database) && folder.Exists(before) {
		err = os.Rename(before, database)
	}
	if err == nil {
		err = wholefile.SyncFolder(dataDir)
	}
	if err == nil {
		err = os.RemoveAll(work)
	}
	if err == nil {
		err = wholefile.SyncFolder(dataDir)
	}
	if err != nil {
		return fmt.Errorf("remove what a reset has left: %w", err)
	}
	return nil
}
