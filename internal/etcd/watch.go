package etcd

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
)

// inProcess returns a client that calls the member directly.
func inProcess(member *etcdserver.EtcdServer) *clientv3.Client {
	client := v3client.New(member)
	client.Watcher = watcher{clientv3.NewWatchFromWatchClient(patient{adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(member))}, client)}
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
// would wait for the other to listen, for ever.
type patient struct{ pb.WatchClient }

// Watch implements pb.WatchClient.
func (p patient) Watch(ctx context.Context, options ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	stream, err := p.WatchClient.Watch(ctx, options...)
	if err != nil {
		return nil, err
	}
	s := &patientStream{Watch_WatchClient: stream, more: make(chan struct{}, 1)}
	go s.run()
	return s, nil
}

type patientStream struct {
	pb.Watch_WatchClient
	more chan struct{}

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
