package etcd

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/storage/etcd/space"
)

const (
	// defaultQuota is the size of the file, in bytes, at which writes end.
	defaultQuota = 8 << 30
	// defaultShare is how many bytes one writer may write in a minute: an eighth of the quota in the ten minutes for
	// which a revision stays at most.
	defaultShare = defaultQuota / 80
	// spaceInterval is how often the size is looked at. A fast disk takes some gigabytes in ten seconds.
	spaceInterval = 2 * time.Second
)

// Metrics are what the database shows of itself.
func (s *Server) Metrics() []prometheus.Collector {
	gauge := func(name, help string, of func(Space) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(of(s.Space())) })
	}
	var of []prometheus.Collector
	if s.peers != nil {
		of = append(s.comparisonMetrics(), s.leadership.metric())
	}
	if s.shares != nil {
		of = append(of, s.shares.Refused)
	}
	return append(of,
		gauge("everynode_database_size_bytes", "The size of the database's file.",
			func(is Space) int64 { return is.Size }),
		gauge("everynode_database_in_use_bytes", "What of the database's file is in use.",
			func(is Space) int64 { return is.InUse }),
		gauge("everynode_database_quota_bytes", "The size of the database's file at which writes are refused.",
			func(is Space) int64 { return is.Quota }))
}

// Space is how much a database takes, in bytes.
type Space struct {
	// Size is that of the file, InUse what of it is no free page, and Quota the size at which writes end.
	Size, InUse, Quota int64
}

// Space tells how much the database takes.
func (s *Server) Space() Space {
	backend := s.etcd.Server.Backend()
	return Space{Size: backend.Size(), InUse: backend.SizeInUse(), Quota: s.etcd.Server.Cfg.QuotaBackendBytes}
}

// keepSpace looks after the size of the database until ctx ends.
func (s *Server) keepSpace(ctx context.Context) {
	ticker := time.NewTicker(spaceInterval)
	defer ticker.Stop()
	for keeper := (&space.Keeper{}); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		facts, err := s.spaceFacts(time.Now())
		if err != nil {
			klog.ErrorS(err, "Cannot look after the size of the database")
			continue
		}
		s.makeSpace(ctx, facts, keeper.Next(facts))
	}
}

func (s *Server) spaceFacts(now time.Time) (space.Facts, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(s.dir(), &disk); err != nil {
		return space.Facts{}, fmt.Errorf("see how much room the disk of the database has: %w", err)
	}
	is, server := s.Space(), s.etcd.Server
	return space.Facts{
		Now: now, Size: is.Size, InUse: is.InUse, Quota: is.Quota,
		Room:     int64(disk.Bavail) * disk.Bsize, //nolint:gosec // No disk is that large.
		Revision: server.KV().Rev(), Compacted: server.KV().FirstRev(),
		Leads: server.Leader() == server.MemberID() && !s.learns(),
		Alarm: s.isFull(),
	}, nil
}

// dir is the folder that holds the file.
func (s *Server) dir() string { return filepath.Join(s.etcd.Config().Dir, "member", "snap") }

// isFull reports whether this member has raised the alarm that it is full.
func (s *Server) isFull() bool {
	for _, alarm := range s.etcd.Server.Alarms() {
		if alarm.GetAlarm() == pb.AlarmType_NOSPACE && alarm.GetMemberID() == uint64(s.etcd.Server.MemberID()) {
			return true
		}
	}
	return false
}

// makeSpace does what was decided. What fails is decided again.
func (s *Server) makeSpace(ctx context.Context, f space.Facts, do space.Action) {
	if do.Tell != "" {
		klog.InfoS(string(do.Tell), "size", f.Size, "inUse", f.InUse, "quota", f.Quota, "room", f.Room)
	}
	var err error
	switch {
	case do.CompactTo > 0:
		s.compact(ctx, do.CompactTo)
	case do.Defragment:
		err = s.defragment(ctx)
	case do.Disarm:
		err = s.disarm(ctx)
	}
	if err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "Cannot make room in the database; it is tried again",
			"size", f.Size, "inUse", f.InUse, "quota", f.Quota)
	}
}

// defragment rewrites the file without its free pages, unless another member does so or is about to: while it lasts, a
// member answers nothing that it reads from the file. Whoever asks says so before it asks, so that of two who ask at
// once none overlooks the other. A member that does not answer is not waited for; it may be lost for good.
func (s *Server) defragment(ctx context.Context) error {
	s.defragmenting.Store(true)
	defer s.defragmenting.Store(false)
	if s.peers != nil {
		for _, other := range s.Ask(ctx) {
			if other.ID != s.Self() && other.Status.Defragmenting {
				klog.FromContext(ctx).V(2).Info("Another server defragments its database; this one waits", "server",
					other.Name)
				return nil
			}
		}
	}
	before, start := s.Space(), time.Now()
	if err := s.etcd.Server.Defragment(); err != nil {
		return fmt.Errorf("defragment the database: %w", err)
	}
	klog.InfoS("Defragmented the database", "before", before.Size, "after", s.Space().Size, "took", time.Since(start))
	return nil
}

// disarm has all members take writes again as far as this one is concerned.
func (s *Server) disarm(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	_, err := s.etcd.Server.Alarm(asked, &pb.AlarmRequest{
		MemberID: uint64(s.etcd.Server.MemberID()), Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE,
	})
	if err != nil {
		return fmt.Errorf("end the alarm that the database is full: %w", err)
	}
	return nil
}
