// Package folder knows the data folder of a server: what is where in it, which process uses it, what was begun in it
// and not finished, and whether its disk has room.
package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// EncryptionFile is the name of what an operator wrote about encryption, as the servers have it that others have
// joined.
const EncryptionFile = "encryption-config.yaml"

// Folders in a data folder that are there while something is done that cannot be done at once. They are the last that
// go, and while one is there, no server starts.
const (
	// UnfinishedReset is there while a server is made the only one, with the database that it makes.
	UnfinishedReset = "reset-unfinished"
	// UnfinishedRestore is there while a backup is restored.
	UnfinishedRestore = "restore-unfinished"
)

// RefuseUnfinished has no server start on a folder that is being restored or reset.
func RefuseUnfinished(dataDir string) error {
	if Exists(filepath.Join(dataDir, UnfinishedReset)) {
		return fmt.Errorf("a reset of %s was not finished; run \"everynode members reset\" again, with the same folder",
			dataDir)
	}
	if Exists(filepath.Join(dataDir, UnfinishedRestore)) {
		return fmt.Errorf("a restore into %s was not finished; "+
			"run \"everynode backup restore\" again, with the same folder", dataDir)
	}
	return nil
}

// Peers is where the certificates are with which the servers' databases meet.
func Peers(dataDir string) string { return filepath.Join(dataDir, "peers") }

// HasDatabase reports whether a data folder holds an embedded database.
func HasDatabase(dataDir string) bool { return Exists(filepath.Join(dataDir, "etcd", "member", "wal")) }

// Exists reports whether something of that name is there, or cannot be looked at.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Size returns how many bytes the files of a folder hold.
func Size(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}

// spared is how much of a disk is left free, in bytes: a full one stops the database.
const spared = 256 << 20

// HaveRoom refuses what needs so many bytes that not enough of a folder's disk would be left.
func HaveRoom(dir string, size int64) error {
	var stat unix.Statfs_t
	err := unix.Statfs(dir, &stat)
	if err != nil {
		return fmt.Errorf("look how full the disk of %s is: %w", dir, err)
	}
	if free := int64(stat.Bavail) * stat.Bsize; free < size+spared { //nolint:gosec // No disk is that large.
		return fmt.Errorf("the disk of %s has %d MiB free, and this needs %d MiB there for a while, "+
			"with some to spare; free some space", dir, free>>20, (size+spared)>>20)
	}
	return nil
}

// Sync has all that was written to the disk of a folder be there for good.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only named
	err = unix.Syncfs(int(f.Fd()))
	if err != nil {
		return fmt.Errorf("write what was restored to the disk: %w", err)
	}
	return nil
}
