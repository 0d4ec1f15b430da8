package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

const backupHint = "; restore the folder from a backup, or move it away to start empty"

// checkData reads what is on disk before etcd does, and changes nothing that
// holds data. Data that cannot be read would crash the process inside etcd.
func checkData(dir string) (logged, error) {
	path := filepath.Join(dir, "member", "snap", "db")
	file, err := checkFile(path)
	if err != nil {
		return logged{}, fmt.Errorf("the database file %s cannot be read: %w"+backupHint, path, err)
	}
	path = filepath.Join(dir, "member", "wal")
	log, err := checkLog(path)
	if err != nil {
		return logged{}, fmt.Errorf("the database log %s cannot be read: %w"+backupHint, path, err)
	}
	if log.committed == 0 && file.applied == 0 && wal.Exist(path) {
		return logged{}, forgetUnfinished(filepath.Join(dir, "member"))
	}
	log.filed = file
	for _, change := range log.changes {
		if change.index <= file.applied {
			continue // the file has it, or it was refused when its turn came
		}
		if err := log.roster.apply(change.ConfChange); err != nil {
			return logged{}, fmt.Errorf("the database log %s cannot be read: %w"+backupHint, path, err)
		}
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

// filed is what a database file says of members: applied is the number of the last entry of the
// log that is in it, and marks are how far each had come, by ID.
type filed struct {
	applied uint64
	roster
	marks map[string]uint64
}

// checkFile walks through the database file. No file, or an empty one, is a start that did
// not get far.
func checkFile(path string) (out filed, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	// The file is mapped into memory: what is missing of it is a memory fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverInto(&err)
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		return out, err
	}
	// Not deferred: closing waits for transactions that a panic left open.
	tx, err := db.Begin(false)
	if err != nil {
		return out, err
	}
	if tx.Size() > info.Size() {
		err = fmt.Errorf("it has %d bytes and should have at least %d", info.Size(), tx.Size())
	} else {
		err = tx.ForEach(out.walk)
	}
	return out, errors.Join(err, tx.Rollback(), db.Close())
}

// walk visits every page of a bucket.
func (f *filed) walk(name []byte, b *bolt.Bucket) error {
	each := func([]byte, []byte) error { return nil }
	switch string(name) {
	case "meta":
		each = f.meta
	case "key":
		each = f.mark
	case "members":
		each = f.member
	case "members_removed":
		each = func(id, _ []byte) error { f.gone = append(f.gone, string(id)); return nil }
	}
	return b.ForEach(each)
}

func (f *filed) meta(name, value []byte) error {
	if string(name) == "consistent_index" && len(value) == 8 {
		f.applied = binary.BigEndian.Uint64(value)
	}
	return nil
}

// mark takes one version of a key, if it tells how far a member is. Later versions come later.
func (f *filed) mark(_, version []byte) error {
	if !bytes.Contains(version[:min(len(version), 2*len(watermarkPrefix))], []byte(watermarkPrefix)) {
		return nil
	}
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(version, &kv); err != nil {
		return fmt.Errorf("read a value: %w", err)
	}
	id, ok := strings.CutPrefix(string(kv.GetKey()), watermarkPrefix)
	if mark, err := strconv.ParseUint(string(kv.GetValue()), 10, 64); ok && err == nil {
		if f.marks == nil {
			f.marks = map[string]uint64{}
		}
		f.marks[id] = mark
	}
	return nil
}

// logged is what a log has: whose it is, the number of its last entry, that of the
// last that is known to count, and the changes of the members up to there. It is empty where
// there is no log.
type logged struct {
	member          string
	last, committed uint64
	changes         []changeOfMembers
	filed
}

// checkEnd makes sure that the log of a database that is alone has what the file has: etcd
// would take changes to come for those that the file has already, and lose them.
func (l logged) checkEnd(dir string) error {
	if l.last >= l.applied {
		return nil
	}
	return fmt.Errorf("the database log %s ends at entry %d, but the database file has entry %d: a part of it is missing"+backupHint,
		filepath.Join(dir, "member", "wal"), l.last, l.applied)
}

// removed reports whether the member itself is one no more.
func (l *logged) removed() bool { return slices.Contains(l.gone, l.member) }

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
	if err == nil {
		out.changes, err = changes(entries, out.committed)
	}
	return out, err
}

// recoverInto turns a panic about unreadable data into an error.
func recoverInto(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%v", p)
	}
}
