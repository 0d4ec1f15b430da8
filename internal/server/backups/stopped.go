package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/everynode/everynode/internal/files/datadir"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/storage/etcd"
)

// TakeStopped makes a backup of the data folder of a server that does not run, whose
// database stays as it is. With ErrRunning one does.
func TakeStopped(ctx context.Context, dataDir string, of Origin) (*Snapshot, error) {
	if !folder.HasDatabase(dataDir) {
		return nil, fmt.Errorf("%s holds no data of a server; name the right folder with --data-dir", dataDir)
	}
	err := datadir.CheckWritten(dataDir, datadir.ThisProgram())
	if err != nil {
		return nil, err
	}
	release, _, err := folder.Lock(dataDir)
	if errors.Is(err, folder.ErrInUse) {
		return nil, ErrRunning
	}
	if err != nil {
		return nil, err
	}
	defer release()
	size, err := folder.Size(filepath.Join(dataDir, "etcd"))
	if err == nil {
		err = folder.HaveRoom(dataDir, 2*size)
	}
	if err != nil {
		return nil, err
	}
	err = ClearScratch(dataDir)
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp(dataDir, scratchPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a folder for the backup: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	configuration := filepath.Join(dataDir, folder.EncryptionFile)
	if !folder.Exists(configuration) {
		configuration = ""
	}
	taken, err := Take(ctx, dataDir, configuration, func(ctx context.Context, w io.Writer) error {
		return etcd.Copy(ctx, filepath.Join(dataDir, "etcd"), scratch, w)
	})
	if err != nil {
		return nil, err
	}
	taken.From(of)
	return taken, nil
}

// scratchPrefix begins the names of what is only there while a backup is made.
const scratchPrefix = ".backup-"

// ClearScratch removes what a process left that was killed while it made a backup. The
// data folder must be locked.
func ClearScratch(dataDir string) error {
	left, err := filepath.Glob(filepath.Join(dataDir, scratchPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range left {
		err = os.RemoveAll(path)
		if err != nil {
			return fmt.Errorf("remove what an unfinished backup has left: %w", err)
		}
	}
	return nil
}
