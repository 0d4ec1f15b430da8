package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/files/datadir"
	"github.com/everynode/everynode/internal/files/wholefile"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/storage/backup"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/storage/etcd"
)

// clocksDiffer is by how much the clocks of two machines may differ that are looked after.
const clocksDiffer = 5 * time.Minute

// Restore makes the data folder of a server that is alone from a backup. The folder must
// be empty. Nothing is made before the beginning of the backup has been read and
// understood, and nothing stays of a restore that fails.
func Restore(ctx context.Context, b *backup.Reader, dataDir string, now time.Time) (revision int64, err error) {
	if now.Before(b.Manifest.Created.Add(-clocksDiffer)) {
		return 0, fmt.Errorf("by the clock of this machine it is %s, and the backup was made at %s: set the clock, "+
			"since several restores of one backup are told apart by it",
			now.UTC().Format(time.RFC3339), b.Manifest.Created.UTC().Format(time.RFC3339))
	}
	if err := mayRestore(dataDir); err != nil {
		return 0, err
	}
	forgetDir, err := datadir.Make(dataDir, 0o700)
	if err != nil {
		return 0, err
	}
	release, forgetLock, err := folder.Lock(dataDir)
	if err != nil {
		return 0, err
	}
	defer release()
	// Somebody may have been quicker.
	if err := mayRestore(dataDir); err != nil {
		return 0, err
	}
	if err := clearUnfinished(dataDir); err != nil {
		return 0, err
	}
	work := filepath.Join(dataDir, folder.UnfinishedRestore)
	revision, err = restoreInto(ctx, b, work, now)
	if err == nil {
		err = moveUp(work, dataDir)
	}
	if err != nil {
		// All that is there was made here.
		err = errors.Join(err, clearUnfinished(dataDir))
		forgetLock()
		forgetDir()
		return 0, err
	}
	return revision, nil
}

// restored are the names that a restore makes in a data folder.
var restored = []string{"etcd", "pki", "encryption.yaml", folder.EncryptionFile, datadir.WrittenFile}

// mayRestore refuses a folder that holds something else than a restore that was not finished.
func mayRestore(dataDir string) error {
	entries, err := os.ReadDir(dataDir)
	if errors.Is(err, fs.ErrNotExist) || dataDir == "" {
		return nil // datadir makes it, or says what is wrong
	}
	if err != nil {
		return fmt.Errorf("look into the folder to restore to: %w", err)
	}
	for _, e := range entries {
		if e.Name() == folder.UnfinishedRestore && e.IsDir() {
			return nil
		}
	}
	for _, e := range entries {
		if name := e.Name(); name != "server.lock" && name != "lost+found" {
			return fmt.Errorf(
				"%s is not empty: it holds %s; a backup is restored into an empty folder, so name another with --data-dir, or "+
					"move what is there away",
				dataDir, name,
			)
		}
	}
	return nil
}

// clearUnfinished removes what a restore has left that was killed. It had begun in an
// empty folder.
func clearUnfinished(dataDir string) error {
	work := filepath.Join(dataDir, folder.UnfinishedRestore)
	if !folder.Exists(work) {
		return nil
	}
	for _, name := range restored {
		if err := os.RemoveAll(filepath.Join(dataDir, name)); err != nil {
			return fmt.Errorf("remove what an unfinished restore has left: %w", err)
		}
	}
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("remove what an unfinished restore has left: %w", err)
	}
	return nil
}

// restoreInto unpacks and checks all of a backup, and makes the database.
func restoreInto(ctx context.Context, b *backup.Reader, work string, now time.Time) (revision int64, err error) {
	if err := os.Mkdir(work, 0o700); err != nil {
		return 0, fmt.Errorf("make a folder to restore in: %w", err)
	}
	// The snapshot is there, the database in which every value is written twice, and that without what was overwritten.
	if err := folder.HaveRoom(work, 4*b.Manifest.DatabaseSize()); err != nil {
		return 0, err
	}
	keys := map[string][]byte{}
	err = b.Each(func(f backup.File, content io.Reader) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return unpack(work, f, content, keys)
	})
	if err != nil {
		return 0, err
	}
	if err := pki.CheckCluster(keys); err != nil {
		return 0, fmt.Errorf("the backup's keys cannot be used: %w", err)
	}
	if err := pki.ImportCluster(filepath.Join(work, "pki"), keys); err != nil {
		return 0, err
	}
	if got, err := pki.ReadCAHash(filepath.Join(work, "pki")); err != nil || got != b.Manifest.Cluster {
		return 0, fmt.Errorf(
			"the backup's keys are not of the cluster that its manifest names: %w", errors.Join(err, fs.ErrInvalid),
		)
	}
	file := filepath.Join(work, backup.Database)
	if revision, err = etcd.Restore(ctx, file, filepath.Join(work, "etcd"), now); err != nil {
		return 0, err
	}
	if err := os.Remove(file); err != nil {
		return 0, err
	}
	return revision, datadir.Sign(work, datadir.ThisProgram())
}

// unpack writes one part to where it belongs. The names of parts have been checked.
func unpack(work string, f backup.File, content io.Reader, keys map[string][]byte) error {
	if f.Name == backup.Database {
		out, err := os.OpenFile(filepath.Join(work, backup.Database), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("restore the database: %w", err)
		}
		_, err = io.Copy(out, content)
		return errors.Join(err, out.Close())
	}
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if name, ok := strings.CutPrefix(f.Name, pkiPart); ok {
		keys[name] = data
		return nil
	}
	to := filepath.Join(work, folder.EncryptionFile)
	if f.Name != folder.EncryptionFile {
		to = encryption.File(work)
	}
	if err := wholefile.Write(to, 0o600, wholefile.Bytes(data)); err != nil {
		return fmt.Errorf("restore %s: %w", f.Name, err)
	}
	return nil
}

// moveUp moves what is complete to where it belongs. The folder that it leaves goes last.
func moveUp(work, dataDir string) error {
	if err := folder.Sync(work); err != nil {
		return err
	}
	for _, name := range restored {
		from := filepath.Join(work, name)
		if !folder.Exists(from) {
			continue
		}
		if err := os.Rename(from, filepath.Join(dataDir, name)); err != nil {
			return fmt.Errorf("move what was restored: %w", err)
		}
	}
	if err := folder.Sync(dataDir); err != nil {
		return err
	}
	if err := os.Remove(work); err != nil {
		return fmt.Errorf("finish the restore: %w", err)
	}
	return wholefile.SyncFolder(dataDir)
}
