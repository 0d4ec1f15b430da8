package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"k8s.io/klog/v2"
)

// leaderlessLooks is how many looks in a row, an election timeout apart, may find no leader before the watches that
// require one end.
const leaderlessLooks = 3

// leadership tells when a member has known no leader for so long that others may have changed what it does not hear of.
type leadership struct {
	mu     sync.Mutex // guards all below
	missed int
	led    context.Context //nolint:containedctx // It is what is asked for.
	end    context.CancelFunc
}

func newLeadership() *leadership {
	l := &leadership{}
	l.led, l.end = context.WithCancel(context.Background())
	return l
}

// look takes in whether there is a leader now.
func (l *leadership) look(is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !is {
		l.missed++
		if l.missed == leaderlessLooks {
			klog.InfoS("This server knows no leader among the servers; watches through it end")
			l.end()
		}
		return
	}
	if l.missed >= leaderlessLooks {
		klog.InfoS("This server knows a leader among the servers again; it takes watches")
		l.led, l.end = context.WithCancel(context.Background())
	}
	l.missed = 0
}

// quorum ends when there is no leader for too long. Once there is one again, the next call returns another.
func (l *leadership) quorum() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.led
}

// inProcess returns a client that calls the member directly. Its watches that require a leader end when there is none.
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
// would wait for the other to listen, for ever. It also ends streams that require a
// leader, as etcd does for clients across a network only.
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
	if requiresLeader(ctx) {
		if p.led() {
			p.leadership.look(true) // who came back before the next look need not end again
		}
		s.leaderless = p.leadership.quorum().Done()
	}
	go s.run()
	return s, nil
}

func requiresLeader(ctx context.Context) bool {
	sent, _ := metadata.FromOutgoingContext(ctx)
	return slices.Contains(sent.Get(rpctypes.MetadataRequireLeaderKey), rpctypes.MetadataHasLeader)
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
