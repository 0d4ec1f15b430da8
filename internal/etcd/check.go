package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

const backupHint = "; restore the folder from a backup, or move it away to start empty"

// checkData reads what is on disk before etcd does, and changes nothing that
// holds data. Data
// that cannot be read would crash the process inside etcd, and a log that lacks
// what the database file has would make it wait for ever.
func checkData(dir string) (logged, error) {
	path := filepath.Join(dir, "member", "snap", "db")
	applied, err := checkFile(path)
	if err != nil {
		return logged{}, fmt.Errorf("the database file %s cannot be read: %w"+backupHint, path, err)
	}
	path = filepath.Join(dir, "member", "wal")
	log, err := checkLog(path)
	if err != nil {
		return logged{}, fmt.Errorf("the database log %s cannot be read: %w"+backupHint, path, err)
	}
	if log.last < applied {
		return logged{}, fmt.Errorf("the database log %s ends at entry %d, but the database file has entry %d: a part of it is missing"+backupHint, path, log.last, applied)
	}
	if log.committed == 0 && applied == 0 && wal.Exist(path) {
		return logged{}, forgetUnfinished(filepath.Join(dir, "member"))
	}
	return log, nil
}

// forgetUnfinished removes a database whose log says of no entry that it counts,
// not even of the first, which is about the member itself. It was killed while it
// was made, before anything could be stored; etcd would take it for a member that
// has only to hear of its cluster, and wait for ever.
func forgetUnfinished(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove a database that was never finished: %w", err)
	}
	return nil
}

// checkFile walks through the database file and returns the number of the last
// entry of the log that is in it. No file, or an empty one, is a start that did
// not get far.
func checkFile(path string) (applied uint64, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	// The file is mapped into memory: what is missing of it is a memory fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverInto(&err)
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		return 0, err
	}
	// Not deferred: closing waits for transactions that a panic left open.
	tx, err := db.Begin(false)
	if err != nil {
		return 0, err
	}
	if tx.Size() > info.Size() {
		err = fmt.Errorf("it has %d bytes and should have at least %d", info.Size(), tx.Size())
	} else if err = tx.ForEach(walk); err == nil {
		if meta := tx.Bucket([]byte("meta")); meta != nil {
			if v := meta.Get([]byte("consistent_index")); len(v) == 8 {
				applied = binary.BigEndian.Uint64(v)
			}
		}
	}
	return applied, errors.Join(err, tx.Rollback(), db.Close())
}

// walk visits every page of a bucket.
func walk(_ []byte, b *bolt.Bucket) error {
	return b.ForEach(func([]byte, []byte) error { return nil })
}

// logged is what a log has: whose it is, the number of its last entry, and that of the
// last that is known to count. It is empty where there is no log.
type logged struct {
	member          string
	last, committed uint64
}

// checkLog reads the log, whose records have checksums. An entry that is cut off at the
// end was not acknowledged.
func checkLog(dir string) (out logged, err error) {
	if !wal.Exist(dir) {
		return out, nil
	}
	defer recoverInto(&err)
	logger := zap.NewNop()
	snapshots, err := wal.ValidSnapshotEntries(logger, dir)
	if err != nil {
		return out, err
	}
	if len(snapshots) == 0 {
		return out, errors.New("its beginning is missing")
	}
	start := snapshots[len(snapshots)-1]
	log, err := wal.OpenForRead(logger, dir, start)
	if err != nil {
		return out, err
	}
	owner, state, entries, err := log.ReadAll()
	var metadata pb.Metadata
	if err == nil {
		err = proto.Unmarshal(owner, &metadata)
	}
	out = logged{member: types.ID(metadata.GetNodeID()).String(), last: start.GetIndex(), committed: max(start.GetIndex(), state.GetCommit())}
	if n := len(entries); n > 0 {
		out.last = entries[n-1].GetIndex()
	}
	_ = log.Close() // nothing was written
	return out, err
}

// recoverInto turns a panic about unreadable data into an error.
func recoverInto(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%v", p)
	}
}
