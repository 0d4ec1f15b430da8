package offline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// Revision walks through a snapshot, so that one that cannot be read is known
// now, and returns the revision of its last change.
func Revision(path string) (revision int64, err error) {
	if _, err := CheckFile(path); err != nil {
		return 0, err
	}
	defer RecoverInto(&err)
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bolt.Tx) error {
		keys := tx.Bucket(schema.Key.Name())
		if keys == nil {
			return errors.New("it is no database of etcd")
		}
		last, _ := keys.Cursor().Last()
		if last == nil {
			return errors.New("there is nothing in it")
		}
		revision = mvcc.BytesToRev(last).Main
		return nil
	})
	return revision, err
}

// ForgetServers has a database that does not run count the servers of before as removed, however many of them come
// back, and forget that one of them was full: it would refuse all writes.
func ForgetServers(dir string, before File) error {
	db, err := bolt.Open(filepath.Join(dir, "member", "snap", "db"), 0o600, &bolt.Options{Timeout: 5 * time.Second})
	if err != nil {
		return fmt.Errorf("open the restored database: %w", err)
	}
	gone := slices.Clone(before.Gone)
	for _, m := range before.Members {
		gone = append(gone, m.ID)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		if tx.Bucket(schema.Alarm.Name()) != nil {
			err := tx.DeleteBucket(schema.Alarm.Name()) // a start makes an empty one
			if err != nil {
				return err
			}
		}
		removed, err := tx.CreateBucketIfNotExists(schema.MembersRemoved.Name())
		for _, id := range gone {
			if err == nil {
				err = removed.Put([]byte(id), []byte("removed"))
			}
		}
		return err
	})
	err = errors.Join(err, db.Close())
	if err != nil {
		return fmt.Errorf("have the restored database forget the servers of before: %w", err)
	}
	return nil
}

// KeepTail has a copied database count all that is in its log. What was acknowledged last is there, but the log is told
// only with the next write that it counts, and who opens a database as one that is alone drops what does not. Of what
// was never acknowledged nobody knows better.
func KeepTail(dir string) error {
	path, logger := filepath.Join(dir, "member", "wal"), zap.NewNop()
	if !wal.Exist(path) {
		return nil
	}
	snapshots, err := wal.ValidSnapshotEntries(logger, path)
	if err != nil || len(snapshots) == 0 {
		return err // that its beginning is missing is found at the start
	}
	log, state, last, err := openLog(path, snapshots[len(snapshots)-1])
	if errors.Is(err, io.ErrUnexpectedEOF) && wal.Repair(logger, path) { // its end is half written
		log, state, last, err = openLog(path, snapshots[len(snapshots)-1])
	}
	if err != nil {
		return err
	}
	if last > state.GetCommit() && state.GetCommit() > 0 {
		state.Commit = &last
		err = log.Save(state, nil)
	}
	return errors.Join(err, log.Close())
}

// openLog opens a log and reads it up to its end, where it can be written.
func openLog(path string, from *walpb.Snapshot) (log *wal.WAL, state *raftpb.HardState, last uint64, err error) {
	defer RecoverInto(&err)
	log, err = wal.Open(zap.NewNop(), path, from)
	if err != nil {
		return nil, nil, 0, err
	}
	_, state, entries, err := log.ReadAll()
	if err != nil {
		return nil, nil, 0, errors.Join(err, log.Close())
	}
	if n := len(entries); n > 0 {
		last = entries[n-1].GetIndex()
	}
	return log, state, last, nil
}

// OwnOnly makes a copied database one that nobody else can read.
func OwnOnly(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o600)
		if entry.IsDir() {
			mode = 0o700
		}
		return os.Chmod(path, mode)
	})
}
