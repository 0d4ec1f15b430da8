package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"k8s.io/klog/v2"
)

// compactPatience bounds the wait for the others.
const compactPatience = time.Minute

// defaultKeep is how long a revision stays readable at least, if fewer than keptRevisions follow it. None stays for
// more than twice as long.
const defaultKeep = 5 * time.Minute

// compactRevision tells the storage layer what the database has forgotten. Its watch cache answers lists of before from
// what it remembers; without this it would do so long after the database does not.
type compactRevision struct{ server *Server }

// CompactRevision implements etcd3.Compactor. Like that, it is 0 for a database that has forgotten nothing.
func (c compactRevision) CompactRevision() int64 { return max(0, c.server.etcd.Server.KV().FirstRev()) }

// compactAtStart has the database forget what is older than keptRevisions. etcd does so five
// minutes after its start, and every five minutes from then on: a database that is started more
// often than that would only grow, until it takes no more writes.
func (s *Server) compactAtStart(ctx context.Context) {
	forget := s.etcd.Server.KV().Rev() - keptRevisions
	if forget <= s.etcd.Server.KV().FirstRev() || s.learns() {
		return
	}
	go s.compact(ctx, forget)
}

// forgetOld has the database forget what was older than one to two times keep, and so makes the lists that clients
// read in parts expire also where little is written. etcd's own compactor sees to it that there is never much.
func (s *Server) forgetOld(ctx context.Context, keep time.Duration) {
	ticker := time.NewTicker(keep)
	defer ticker.Stop()
	for old := s.etcd.Server.KV().Rev(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := s.etcd.Server.KV().Rev()
		if s.etcd.Server.Leader() == s.etcd.Server.MemberID() && old > s.etcd.Server.KV().FirstRev() {
			s.compact(ctx, old)
		}
		old = now
	}
}

// compact has the database forget what is older than a revision. What fails is tried again later by somebody.
func (s *Server) compact(ctx context.Context, revision int64) {
	asked, cancel := context.WithTimeout(ctx, compactPatience)
	defer cancel()
	_, err := s.etcd.Server.Compact(asked, &pb.CompactionRequest{Revision: revision})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) && ctx.Err() == nil {
		klog.ErrorS(err, "Cannot compact the database; it is tried again in some minutes", "revision", revision)
	}
}
