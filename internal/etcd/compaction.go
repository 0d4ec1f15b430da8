package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"k8s.io/klog/v2"
)

// compactPatience bounds the wait for the others at the start.
const compactPatience = time.Minute

// compactAtStart has the database forget what is older than keptRevisions. etcd does so five
// minutes after its start, and every five minutes from then on: a database that is started more
// often than that would only grow, until it takes no more writes.
func (s *Server) compactAtStart(ctx context.Context) {
	forget := s.etcd.Server.KV().Rev() - keptRevisions
	if forget <= s.etcd.Server.KV().FirstRev() || s.etcd.Server.IsLearner() {
		return
	}
	go func() {
		asked, cancel := context.WithTimeout(ctx, compactPatience)
		defer cancel()
		_, err := s.etcd.Server.Compact(asked, &pb.CompactionRequest{Revision: forget})
		if err != nil && !errors.Is(err, mvcc.ErrCompacted) && ctx.Err() == nil {
			klog.ErrorS(err, "Cannot compact the database at the start; it is tried again in some minutes", "revision", forget)
		}
	}()
}
