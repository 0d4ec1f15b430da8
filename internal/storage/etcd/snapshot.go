package etcd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/everynode/everynode/internal/storage/etcd/kv"
	"github.com/everynode/everynode/internal/storage/etcd/offline"
)

const (
	// snapshotPatience is how long a majority may take to agree on what is to be in a snapshot.
	snapshotPatience = 15 * time.Second
	// leap is how many revisions a restored database is at least ahead of its snapshot.
	leap = 1_000_000_000
	// touchedAtOnce is how many values are written at a time when all are.
	touchedAtOnce = 1000
)

// SnapshotSize is about how large a snapshot would be, in bytes.
func (s *Server) SnapshotSize() int64 { return s.etcd.Server.Backend().Size() }

// Snapshot writes the database as it is at one moment, in the format of etcdutl: all that
// was acknowledged before the call is in it.
func (s *Server) Snapshot(ctx context.Context, w io.Writer) error {
	asked, cancel := context.WithTimeout(ctx, snapshotPatience)
	defer cancel()
	client := s.newClient().Client
	defer s.drop(client)
	if _, err := client.Get(asked, "/", clientv3.WithCountOnly()); err != nil {
		return fmt.Errorf("find out what a majority of the servers has agreed to: %w", kv.OneLine(err))
	}
	view := s.etcd.Server.Backend().Snapshot()
	sum := sha256.New()
	_, err := view.WriteTo(io.MultiWriter(stopping{ctx, w}, sum))
	if err = errors.Join(err, view.Close()); err == nil {
		_, err = w.Write(sum.Sum(nil))
	}
	if err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	return nil
}

// stopping is a writer that takes nothing once ctx has ended.
type stopping struct {
	ctx context.Context //nolint:containedctx // It lives as long as one copy.
	io.Writer
}

func (s stopping) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.Writer.Write(p)
}

// Restore makes a database of one member in dir, which must not exist, from a snapshot.
//
// Clients of the database that was lost have seen revisions that the snapshot does not
// have. For them time must not go backwards: the new revisions begin above all that can
// have been, and every value is written once more, so that no client takes the object
// that it knows for the newer one. Several restores of one snapshot are in order among
// each other by the clock.
func Restore(ctx context.Context, from, dir string, now time.Time) (revision int64, err error) {
	defer offline.RecoverInto(&err)
	last, err := offline.Revision(from)
	if err != nil {
		return 0, fmt.Errorf("read the snapshot: %w", err)
	}
	before, err := offline.CheckFile(from)
	if err != nil {
		return 0, fmt.Errorf("read who the servers of before were: %w", err)
	}
	cfg, err := config(Options{Dir: dir}, newFatal())
	if err != nil {
		return 0, err
	}
	begin := max(last+leap, now.UnixMicro())
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: from, OutputDataDir: dir, Name: cfg.Name, PeerURLs: []string{cfg.AdvertisePeerUrls[0].String()},
		InitialCluster: cfg.InitialCluster,
		// Another token makes it another cluster for members of before.
		InitialClusterToken: "everynode-" + strconv.FormatInt(now.UnixNano(), 36),
		RevisionBump:        uint64(begin - last), MarkCompacted: true, //nolint:gosec // It is larger.
	})
	if err != nil {
		return 0, fmt.Errorf("make a database of the snapshot: %w", err)
	}
	if err := offline.ForgetServers(dir, before); err != nil {
		return 0, err
	}
	return renewAll(ctx, dir, now)
}

// renewAll writes every value of a database once more and leaves a file that holds nothing else. Meanwhile the file may
// be larger than its quota: all that was overwritten may be in it, and every value twice.
func renewAll(ctx context.Context, dir string, now time.Time) (revision int64, err error) {
	s, err := Start(ctx, Options{Dir: dir, quota: -1})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if revision, err = s.touchAll(ctx, now); err != nil {
		return 0, err
	}
	if _, err := s.etcd.Server.Compact(ctx, &pb.CompactionRequest{Revision: revision, Physical: true}); err != nil {
		return 0, fmt.Errorf("remove what was overwritten from the restored database: %w", err)
	}
	return revision, s.defragment(ctx)
}

// restoredKey tells of which restore a database is.
const restoredKey = "/everynode/restored"

// Restored names the last restore of this database, by its time; empty for none. What this
// member has will do: it was there before the first other one joined.
func (s *Server) Restored(ctx context.Context) (string, error) {
	client := s.newClient().Client
	defer s.drop(client)
	answer, err := client.Get(ctx, restoredKey, clientv3.WithSerializable())
	if err != nil {
		return "", fmt.Errorf("read of which restore the database is: %w", kv.OneLine(err))
	}
	if len(answer.Kvs) == 0 {
		return "", nil
	}
	return string(answer.Kvs[0].Value), nil
}

// ofMembers is what members have told each other, and a database that is alone must not take
// for said to it: whoever replaces keys before others join would wait for the keys of before.
var ofMembers = []clientv3.Op{
	clientv3.OpDelete(string(ClusterKeys)), clientv3.OpDelete(string(PeerKeys)), clientv3.OpDelete(turnKey),
	clientv3.OpDelete(offline.WatermarkPrefix, clientv3.WithPrefix()),
}

// touchAll writes every value of a database once more, but for those of members, and which
// restore it is of.
func (s *Server) touchAll(ctx context.Context, now time.Time) (revision int64, err error) {
	client := s.newClient().Client
	if _, err := client.Txn(ctx).Then(append(slices.Clone(ofMembers),
		clientv3.OpPut(restoredKey, now.UTC().Format(time.RFC3339Nano)))...).Commit(); err != nil {
		return 0, fmt.Errorf("forget the servers of before: %w", kv.OneLine(err))
	}
	for next := "\x00"; ; {
		page, err := client.Get(ctx, next, clientv3.WithFromKey(), clientv3.WithLimit(touchedAtOnce),
			clientv3.WithKeysOnly())
		if err != nil {
			return 0, fmt.Errorf("read the restored database: %w", kv.OneLine(err))
		}
		var ops []clientv3.Op
		for _, kv := range page.Kvs {
			ops = append(ops, clientv3.OpPut(string(kv.Key), "", clientv3.WithIgnoreValue(),
				clientv3.WithIgnoreLease()))
			next = string(kv.Key) + "\x00"
		}
		if revision = page.Header.Revision; len(ops) == 0 {
			return revision, nil
		}
		if _, err := client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return 0, fmt.Errorf("write what is restored: %w", kv.OneLine(err))
		}
	}
}

// Copy makes a snapshot of the database of a server that does not run. It works on a
// copy, in the folder scratch: nothing of the database changes. One of several is taken
// by itself, speaks to no other, and has all that is in its log.
func Copy(ctx context.Context, dir, scratch string, w io.Writer) error {
	copied := filepath.Join(scratch, "etcd")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	if err := offline.OwnOnly(copied); err != nil {
		return err
	}
	if err := offline.KeepTail(copied); err != nil {
		return fmt.Errorf("read the log of the database: %w", err)
	}
	s, err := Start(ctx, Options{Dir: copied, forgetOthers: true})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Snapshot(ctx, w)
}

// Reset makes a database of one member in dir, which must not exist, of that of a server which does not run and whose
// others are lost. It works in the folder scratch. Time goes on for clients as after a restore, since the others may
// have given out revisions of which this one had not heard.
func Reset(ctx context.Context, of, scratch, dir string, now time.Time) error {
	path := filepath.Join(scratch, "snapshot")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	err = errors.Join(Copy(ctx, of, scratch, f), f.Close())
	if err != nil {
		return err
	}
	_, err = Restore(ctx, path, dir, now)
	return err
}
