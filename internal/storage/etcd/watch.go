package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/storage/etcd/apistorage"
)

// leaderlessLooks is how many looks in a row, an election timeout apart, may find no leader before a server counts
// as cut off.
const leaderlessLooks = 3

// leadership tells when a member has known no leader for so long that others may have changed what it does not hear of.
type leadership struct {
	mu     sync.Mutex // guards all below
	missed int
	// since is when the first of the looks was that found no leader.
	since time.Time
	led   context.Context //nolint:containedctx // It is what is asked for.
	end   context.CancelCauseFunc
}

func newLeadership() *leadership {
	l := &leadership{}
	l.led, l.end = context.WithCancelCause(context.Background())
	return l
}

// look takes in whether there is a leader now.
func (l *leadership) look(now time.Time, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !is {
		if l.missed == 0 {
			l.since = now
		}
		l.missed++
		if l.missed == leaderlessLooks {
			klog.InfoS("This server knows no leader among the servers; watches through it end", "since", l.since)
			l.end(fmt.Errorf("it has known no leader since %s", l.since.UTC().Format(time.RFC3339)))
		}
		return
	}
	if l.missed >= leaderlessLooks {
		klog.InfoS("This server knows a leader among the servers again; it takes watches", "after", now.Sub(l.since))
		l.led, l.end = context.WithCancelCause(context.Background())
	}
	l.missed = 0
}

// follow looks, an election timeout apart, until ctx ends.
func (l *leadership) follow(ctx context.Context, every time.Duration, led func(context.Context) bool) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			l.look(now, led(ctx))
		}
	}
}

// cutOff is since when there has been no leader, once that is for too long; zero if there is one.
func (l *leadership) cutOff() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missed < leaderlessLooks {
		return time.Time{}
	}
	return l.since
}

// metric is what a member shows of that.
func (l *leadership) metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "everynode_database_cut_off_timestamp_seconds",
		Help: "Since when this server has been cut off from the majority of the servers; 0 while it is not."},
		func() float64 {
			if since := l.cutOff(); !since.IsZero() {
				return float64(since.Unix())
			}
			return 0
		})
}

// quorum ends when there is no leader for too long, and its cause says since when. Once there is one again, the next
// call returns another.
func (l *leadership) quorum() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.led
}

// inProcess returns a client that calls the member directly.
func inProcess(member *etcdserver.EtcdServer, l *leadership) *clientv3.Client {
	client := v3client.New(member)
	direct := adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(member))
	client.Watcher = watcher{clientv3.NewWatchFromWatchClient(patient{direct, l,
		func() bool { return member.Leader() != 0 }}, client)}
	return client
}

// watcher hides the values of contexts: the streams of watches print theirs, while others change them.
type watcher struct{ clientv3.Watcher }

type plainContext struct{ context.Context } //nolint:containedctx // It is that context.

func (plainContext) String() string { return "watch" }

// Watch implements clientv3.Watcher.
func (w watcher) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	return w.Watcher.Watch(plainContext{ctx}, key, options...)
}

// patient keeps a client's requests until the member takes them. Between a client
// and a member in one process there is no network, and so none of its buffers:
// when very many watches of a stream end while others tell something, each side
// would wait for the other to listen, for ever. It also ends the streams that are to end without a
// leader.
type patient struct {
	pb.WatchClient
	leadership *leadership
	// led reports whether the member knows a leader.
	led func() bool
}

// Watch implements pb.WatchClient.
func (p patient) Watch(ctx context.Context, options ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := p.WatchClient.Watch(ctx, options...)
	if err != nil {
		cancel(err)
		return nil, err
	}
	s := &patientStream{Watch_WatchClient: stream, cancel: cancel, more: make(chan struct{}, 1)}
	if apistorage.EndsWithoutLeader(ctx) {
		if p.led() {
			p.leadership.look(time.Now(), true) // who came back before the next look need not end again
		}
		s.leaderless = p.leadership.quorum().Done()
	}
	go s.run()
	return s, nil
}

type patientStream struct {
	pb.Watch_WatchClient
	cancel context.CancelCauseFunc
	// leaderless is closed when the stream is to end since there is no leader; nil if it needs none.
	leaderless <-chan struct{}
	more       chan struct{}

	mu     sync.Mutex // guards all below
	queue  []*pb.WatchRequest
	closed bool
}

// Send implements pb.Watch_WatchClient. It does not wait.
func (s *patientStream) Send(r *pb.WatchRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, r)
	s.wake()
	return s.Context().Err()
}

// Recv implements pb.Watch_WatchClient.
func (s *patientStream) Recv() (*pb.WatchResponse, error) {
	r, err := s.Watch_WatchClient.Recv()
	if err != nil && errors.Is(context.Cause(s.Context()), rpctypes.ErrGRPCNoLeader) {
		return nil, rpctypes.ErrGRPCNoLeader
	}
	return r, err
}

// CloseSend implements grpc.ClientStream.
func (s *patientStream) CloseSend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wake()
	return nil
}

func (s *patientStream) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// run hands requests over until the stream ends.
func (s *patientStream) run() {
	for {
		select {
		case <-s.more:
		case <-s.leaderless:
			s.cancel(rpctypes.ErrGRPCNoLeader)
			return
		case <-s.Context().Done():
			return
		}
		requests, closed := s.take()
		for _, r := range requests {
			if s.Watch_WatchClient.Send(r) != nil {
				return // The stream has ended, which its reader is told.
			}
		}
		if closed {
			_ = s.Watch_WatchClient.CloseSend() // It closes a channel, and cannot fail.
			return
		}
	}
}

func (s *patientStream) take() ([]*pb.WatchRequest, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.queue
	s.queue = nil
	return requests, s.closed
}
