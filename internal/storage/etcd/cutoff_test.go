package etcd

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/everynode/everynode/internal/storage/etcd/apistorage"
)

// silent is a member's way to watch that tells nothing by itself.
type silent struct{ pb.WatchClient }

func (silent) Watch(ctx context.Context, _ ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	return silentStream{ctx: ctx}, nil
}

type silentStream struct {
	pb.Watch_WatchClient
	ctx context.Context //nolint:containedctx // A stream has one.
}

func (s silentStream) Context() context.Context { return s.ctx }

func (s silentStream) Recv() (*pb.WatchResponse, error) {
	<-s.ctx.Done()
	return nil, s.ctx.Err()
}

// member is one whose way to the others can be cut, by the clock of a bubble.
type member struct {
	leadership *leadership
	client     patient
	led        atomic.Bool
}

// watch begins a watch; the channel gets its end. The library's do not ask to be ended.
func (m *member) watch(ctx context.Context, library bool) <-chan error {
	end := make(chan error, 1)
	if !library {
		ctx = apistorage.EndingWithoutLeader(ctx)
	}
	stream, err := m.client.Watch(ctx)
	if err != nil {
		end <- err
		return end
	}
	go func() {
		_, err := stream.Recv()
		end <- err
	}()
	synctest.Wait()
	return end
}

func ended(watch <-chan error) (error, bool) {
	select {
	case err := <-watch:
		return err, true
	default:
		return nil, false
	}
}

// A member that is cut off ends its watches within four seconds, and takes none for as long as the cut lasts: also one
// that is longer than any that the rounds of faults have. It takes them again within a second or two, as often as that
// happens. A moment without a leader, as in an election, ends none.
func TestACutOfAnyLength(t *testing.T) {
	const soon = 4 * time.Second
	for _, cut := range []time.Duration{5 * time.Second, 29 * time.Second, 31 * time.Second, 2 * time.Minute, 3 * time.Hour} {
		t.Run(cut.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				m := &member{leadership: newLeadership()}
				m.led.Store(true)
				m.client = patient{silent{}, m.leadership, m.led.Load}
				go m.leadership.follow(ctx, time.Second, func(context.Context) bool { return m.led.Load() })
				library := m.watch(ctx, true)
				for range 3 {
					watch, quorum := m.watch(ctx, false), m.leadership.quorum()
					m.led.Store(false)
					time.Sleep(1900 * time.Millisecond)
					m.led.Store(true)
					time.Sleep(time.Minute)
					if err, over := ended(watch); over || quorum.Err() != nil {
						t.Fatalf("an election ends a watch: %v, %v", err, quorum.Err())
					}

					m.led.Store(false)
					time.Sleep(soon)
					synctest.Wait()
					if err, over := ended(watch); !over || !errors.Is(err, rpctypes.ErrGRPCNoLeader) || quorum.Err() == nil {
						t.Fatalf("%s after the cut a watch has ended: %t, with %v; those of clients: %v", soon, over, err, quorum.Err())
					}
					for at := soon; at < cut; at += time.Second {
						err, over := ended(m.watch(ctx, false))
						if !over || !errors.Is(err, rpctypes.ErrGRPCNoLeader) || m.leadership.quorum().Err() == nil {
							t.Fatalf("%s after the cut a new watch has ended: %t, with %v", at, over, err)
						}
						time.Sleep(time.Second)
					}

					m.led.Store(true)
					time.Sleep(2 * time.Second)
					again := m.watch(ctx, false)
					time.Sleep(time.Minute)
					if err, over := ended(again); over || m.leadership.quorum().Err() != nil {
						t.Fatalf("after the cut a watch ends with %v", err)
					}
				}
				if err, over := ended(library); over {
					t.Errorf("a watch of the library has ended: %v", err)
				}
			})
		})
	}
}
