// Package offline reads and mends a database that does not run, as the files that it is.
package offline

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

	"github.com/everynode/everynode/internal/storage/etcd/roster"
)

// BackupHint ends what is said of a database that cannot be read.
const BackupHint = "; restore the folder from a backup, or move it away to start empty"

// Check reads what is on disk before etcd does, and changes nothing that
// holds data. Data that cannot be read would crash the process inside etcd.
func Check(dir string) (Data, error) {
	path := filepath.Join(dir, "member", "snap", "db")
	file, err := CheckFile(path)
	if err != nil {
		return Data{}, fmt.Errorf("the database file %s cannot be read: %w"+BackupHint, path, err)
	}
	path = filepath.Join(dir, "member", "wal")
	log, err := checkLog(path)
	if err != nil {
		return Data{}, fmt.Errorf("the database log %s cannot be read: %w"+BackupHint, path, err)
	}
	if log.committed == 0 && file.Applied == 0 && wal.Exist(path) {
		return Data{}, forgetUnfinished(filepath.Join(dir, "member"))
	}
	log.File = file
	for _, change := range log.changes {
		if change.Index <= file.Applied {
			continue // the file has it, or it was refused when its turn came
		}
		if err := log.Roster.Apply(change.ConfChange); err != nil {
			return Data{}, fmt.Errorf("the database log %s cannot be read: %w"+BackupHint, path, err)
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

// File is what a database file says of members: Applied is the number of the last entry of the
// log that is in it, and Marks are how far each had come, by ID.
type File struct {
	Applied uint64
	roster.Roster
	Marks map[string]uint64
}

// CheckFile walks through the database file. No file, or an empty one, is a start that did
// not get far.
func CheckFile(path string) (out File, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	// The file is mapped into memory: what is missing of it is a memory fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer RecoverInto(&err)
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
func (f *File) walk(name []byte, b *bolt.Bucket) error {
	each := func([]byte, []byte) error { return nil }
	switch string(name) {
	case "meta":
		each = f.meta
	case "key":
		each = f.mark
	case "members":
		each = f.Read
	case "members_removed":
		each = func(id, _ []byte) error { f.Gone = append(f.Gone, string(id)); return nil }
	}
	return b.ForEach(each)
}

func (f *File) meta(name, value []byte) error {
	if string(name) == "consistent_index" && len(value) == 8 {
		f.Applied = binary.BigEndian.Uint64(value)
	}
	return nil
}

// mark takes one version of a key, if it tells how far a member is. Later versions come later.
func (f *File) mark(_, version []byte) error {
	if !bytes.Contains(version[:min(len(version), 2*len(WatermarkPrefix))], []byte(WatermarkPrefix)) {
		return nil
	}
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(version, &kv); err != nil {
		return fmt.Errorf("read a value: %w", err)
	}
	id, ok := strings.CutPrefix(string(kv.GetKey()), WatermarkPrefix)
	if mark, err := strconv.ParseUint(string(kv.GetValue()), 10, 64); ok && err == nil {
		if f.Marks == nil {
			f.Marks = map[string]uint64{}
		}
		f.Marks[id] = mark
	}
	return nil
}

// Data is what a database has on disk: whose its log is, the number of the last entry there, that of the last that is
// known to count, the changes of the members up to there, and what the file has. It is empty where there is no log.
type Data struct {
	Member          string
	Last, committed uint64
	changes         []roster.Change
	File
}

// CheckEnd makes sure that the log of a database that is alone has what the file has: etcd
// would take changes to come for those that the file has already, and lose them.
func (l Data) CheckEnd(dir string) error {
	if l.Last >= l.Applied {
		return nil
	}
	return fmt.Errorf("the database log %s ends at entry %d, but the database file has entry %d: a part of it is "+
		"missing"+BackupHint,
		filepath.Join(dir, "member", "wal"), l.Last, l.Applied)
}

// Removed reports whether the member itself is one no more.
func (l *Data) Removed() bool { return slices.Contains(l.Gone, l.Member) }

// checkLog reads the log, whose records have checksums. An entry that is cut off at the
// end was not acknowledged.
func checkLog(dir string) (out Data, err error) {
	if !wal.Exist(dir) {
		return out, nil
	}
	defer RecoverInto(&err)
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
	out = Data{Member: types.ID(metadata.GetNodeID()).String(), Last: start.GetIndex(),
		committed: max(start.GetIndex(), state.GetCommit())}
	if n := len(entries); n > 0 {
		out.Last = entries[n-1].GetIndex()
	}
	_ = log.Close() // nothing was written
	if err == nil {
		out.changes, err = roster.Changes(entries, out.committed)
	}
	return out, err
}

// RecoverInto turns a panic about unreadable data into an error.
func RecoverInto(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%v", p)
	}
}

// WatermarkPrefix is where members write down how far they have come.
const WatermarkPrefix = "/everynode/watermarks/"
