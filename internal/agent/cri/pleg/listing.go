package pleg

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criutil "k8s.io/cri-client/pkg/util"

	"github.com/everynode/everynode/internal/agent/cri/labels"
)

// maxAnswer is how large an answer of the runtime may be, in bytes.
const maxAnswer = 16 << 20

// How the runtime is connected to again, after restarts: as the library does.
const (
	shortestPause  = 100 * time.Millisecond
	longestPause   = 3 * time.Second
	connectTimeout = 5 * time.Second
)

// listTimeout bounds a list.
const listTimeout = 2 * time.Minute

// listed is a sandbox or a container of a list.
type listed struct {
	pod   PodRef
	state int32
	// place is which of the list it is.
	place int
}

// listing is what was in a list, by ID.
type listing map[string]listed

// Lister lists what a runtime holds. A list of what was there before costs next to nothing: every second there is one,
// it has some hundred kilobytes on a node with many pods, most of it labels and annotations, and nearly always it says
// what the last one said.
type Lister struct{ connection *grpc.ClientConn }

// NewLister uses the runtime's socket. It connects when it is needed, and again as the library for the other calls
// does.
func NewLister(endpoint string) (*Lister, error) {
	address, dial, err := criutil.GetAddressAndDialer(endpoint)
	if err != nil {
		return nil, fmt.Errorf("find the socket of the container runtime at %s: %w", endpoint, err)
	}
	again := backoff.DefaultConfig
	again.BaseDelay, again.MaxDelay = shortestPause, longestPause
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dial), grpc.WithConnectParams(grpc.ConnectParams{Backoff: again,
			MinConnectTimeout: connectTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.ForceCodecV2(codec{})))
	if err != nil {
		return nil, fmt.Errorf("connect to the container runtime at %s: %w", endpoint, err)
	}
	return &Lister{connection}, nil
}

// Close closes the connection.
func (l *Lister) Close() error { return l.connection.Close() }

// sandboxes lists the sandboxes, and says whether that is another list than last; nil for the first one.
func (l *Lister) sandboxes(ctx context.Context, last listing) (now listing, changed bool, err error) {
	answer := answer{last: last, state: 3, labels: 5}
	list := &runtimeapi.ListPodSandboxResponse{}
	changed, err = l.list(ctx, runtimeapi.RuntimeService_ListPodSandbox_FullMethodName,
		&runtimeapi.ListPodSandboxRequest{}, &answer, list)
	if err != nil || !changed {
		return last, changed, err
	}
	return ofSandboxes(list.Items), true, nil
}

// containers is sandboxes for containers.
func (l *Lister) containers(ctx context.Context, last listing) (now listing, changed bool, err error) {
	answer := answer{last: last, state: 6, labels: 8}
	list := &runtimeapi.ListContainersResponse{}
	changed, err = l.list(ctx, runtimeapi.RuntimeService_ListContainers_FullMethodName,
		&runtimeapi.ListContainersRequest{}, &answer, list)
	if err != nil || !changed {
		return last, changed, err
	}
	return ofContainers(list.Containers), true, nil
}

func (l *Lister) list(ctx context.Context, method string, request proto.Message, a *answer,
	into proto.Message) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	a.into = into
	err = l.connection.Invoke(ctx, method, request, a)
	return !a.same, err
}

// whole lists by another way, which reads all of every list.
type whole struct{ internalapi.RuntimeService }

func (w whole) sandboxes(ctx context.Context, _ listing) (listing, bool, error) {
	list, err := w.ListPodSandbox(ctx, nil)
	return ofSandboxes(list), true, err
}

func (w whole) containers(ctx context.Context, _ listing) (listing, bool, error) {
	list, err := w.ListContainers(ctx, nil)
	return ofContainers(list), true, err
}

func ofSandboxes(list []*runtimeapi.PodSandbox) listing {
	out := make(listing, len(list))
	for i, s := range list {
		out[s.GetId()] = listed{podOf(s.GetLabels()), int32(s.GetState()), i}
	}
	return out
}

func ofContainers(list []*runtimeapi.Container) listing {
	out := make(listing, len(list))
	for i, c := range list {
		out[c.GetId()] = listed{podOf(c.GetLabels()), int32(c.GetState()), i}
	}
	return out
}

// answer is a list as it comes. The numbers of fields are those of what is in the list; in the list, and in the name of
// everything, the number is 1.
type answer struct {
	last          listing
	state, labels protowire.Number
	into          proto.Message
	same          bool
}

// take reads the list, if it is not the same as the last one.
func (a *answer) take(data []byte) error {
	a.same = a.last != nil && a.isLast(data)
	if a.same {
		return nil
	}
	return proto.Unmarshal(data, a.into)
}

// isLast says whether the list has what the last one had, in whatever order. What it does not understand is different.
func (a *answer) isLast(data []byte) bool {
	found, seen := 0, make([]bool, len(a.last))
	same := fields(data, func(number protowire.Number, item []byte, _ uint64) bool {
		if number != 1 || item == nil {
			return true
		}
		known, ok := a.find(item)
		if !ok || known.place >= len(seen) || seen[known.place] {
			return false
		}
		seen[known.place] = true
		found++
		return true
	})
	return same && found == len(a.last)
}

// find finds what is like an item of the list in the last one.
func (a *answer) find(item []byte) (known listed, ok bool) {
	var id, uid []byte
	var state uint64
	if !fields(item, func(number protowire.Number, text []byte, n uint64) bool {
		switch {
		case text == nil:
			if number == a.state {
				state = n
			}
		case number == 1:
			id = text
		case number == a.labels:
			if value, ok := labelIn(text, labels.PodUID); ok {
				uid = value
			}
		}
		return true
	}) {
		return listed{}, false
	}
	known, ok = a.last[string(id)]
	return known, ok && uint64(known.state) == state && string(uid) == string(known.pod.UID)
}

// labelIn returns the value of a label with its key, if it has that key.
func labelIn(label []byte, wanted string) (value []byte, ok bool) {
	fields(label, func(number protowire.Number, text []byte, _ uint64) bool {
		switch number {
		case 1:
			ok = string(text) == wanted
		case 2:
			value = text
		}
		return true
	})
	return value, ok
}

// fields calls each with every field of a message that is text, a message or a number, while it returns true; text is
// nil for a number. It says whether all
// was understood, and each always returned true.
func fields(message []byte, each func(number protowire.Number, text []byte, n uint64) bool) bool {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return false
		}
		message = message[size:]
		var text []byte
		var n uint64
		known := true
		switch kind {
		case protowire.BytesType:
			text, size = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(message)
		default:
			known, size = false, protowire.ConsumeFieldValue(number, kind, message)
		}
		if size < 0 || known && !each(number, text, n) {
			return false
		}
		message = message[size:]
	}
	return true
}

// codec is gRPC's own, but for answers that are looked at before they are read.
type codec struct{}

func (codec) Marshal(v any) (mem.BufferSlice, error) { return encoding.GetCodecV2("proto").Marshal(v) }

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	a, ok := v.(*answer)
	if !ok {
		return fmt.Errorf("an answer is read into %T", v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return a.take(buffer.ReadOnlyData())
}

func (codec) Name() string { return "proto" }
