package pleg

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/cri/labels"
)

// socket has lists answer at a socket, as a runtime does.
type socket struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	*lists
	fails bool
}

func (s *socket) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse,
	error) {
	if s.fails {
		return nil, status.Error(codes.Unavailable, "the runtime is busy")
	}
	return &runtimeapi.ListPodSandboxResponse{Items: s.sandboxes}, nil
}

func (s *socket) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse,
	error) {
	return &runtimeapi.ListContainersResponse{Containers: s.containers}, nil
}

// startSocket serves lists until the test ends.
func startSocket(t *testing.T, l *lists) (*socket, *Lister) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s, server := &socket{lists: l}, grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	lister, err := NewLister("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lister.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, lister
}

// everyWay runs a test with what lists at a socket, and with what lists otherwise.
func everyWay(t *testing.T, name string, test func(t *testing.T, newRuntime func(*lists) *Generator)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { test(t, func(l *lists) *Generator { return &Generator{Service: l} }) })
	t.Run(name+", at a socket", func(t *testing.T) {
		test(t, func(l *lists) *Generator {
			_, lister := startSocket(t, l)
			return &Generator{Service: l, Lister: lister}
		})
	})
}

// two are a pod's sandbox and container.
func two() *lists {
	labels := map[string]string{labels.PodUID: "u", labels.PodNamespace: "ns", labels.PodName: "p", "app": "x"}
	return &lists{
		sandboxes: []*runtimeapi.PodSandbox{{Id: "s", Labels: labels, Annotations: map[string]string{"a": "b"},
			CreatedAt: 12}},
		containers: []*runtimeapi.Container{
			{Id: "c", PodSandboxId: "s", Labels: labels, Image: &runtimeapi.ImageSpec{Image: "i"},
				State: runtimeapi.ContainerState_CONTAINER_RUNNING},
			{Id: "d", PodSandboxId: "s", Labels: labels, State: runtimeapi.ContainerState_CONTAINER_EXITED},
			{Id: "e", State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		},
	}
}

// A list that is the last one again is not read, and any other is.
func TestTheSameAgain(t *testing.T) {
	l := two()
	s, lister := startSocket(t, l)
	r := &Generator{Lister: lister}
	look := func(last *looked) *looked {
		t.Helper()
		now, err := r.look(t.Context(), last)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	first := look(nil)
	want := podLook{ref: PodRef{UID: "u", Namespace: "ns", Name: "p"},
		sandboxes: map[string]runtimeapi.PodSandboxState{"s": runtimeapi.PodSandboxState_SANDBOX_READY},
		containers: map[string]runtimeapi.ContainerState{"c": runtimeapi.ContainerState_CONTAINER_RUNNING,
			"d": runtimeapi.ContainerState_CONTAINER_EXITED}}
	listed := want.ref
	listed.Runs = true
	if got := first.pods["u"]; len(first.pods) != 1 || !got.same(want) || got.ref != want.ref || len(first.refs) != 1 ||
		first.refs[0] != listed {
		t.Errorf("got %+v, want %+v", first, want)
	}
	l.containers[0], l.containers[1] = l.containers[1], l.containers[0]
	if again := look(first); again != first {
		t.Errorf("the same in another order is %+v", again)
	}
	s.fails = true
	if _, err := r.look(t.Context(), first); err == nil ||
		err.Error() != "list sandboxes: rpc error: code = Unavailable desc = the runtime is busy" {
		t.Errorf("a list that fails: %v", err)
	}
	s.fails = false
	l.containers[0].State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
	second := look(first)
	if second == first || second.pods["u"].containers["d"] != runtimeapi.ContainerState_CONTAINER_UNKNOWN ||
		len(second.pods["u"].sandboxes) != 1 {
		t.Errorf("with another state: %+v", second)
	}
	l.sandboxes, l.containers = nil, nil
	empty := look(second)
	if empty == second || len(empty.pods) != 0 || len(empty.refs) != 0 {
		t.Errorf("with nothing: %+v", empty)
	}
	if again := look(empty); again != empty {
		t.Errorf("still with nothing: %+v", again)
	}
}

// Whatever bytes come, the same is the same as reading them would show.
func FuzzTheSameAgain(f *testing.F) {
	seed := two().containers
	for _, list := range [][]*runtimeapi.Container{nil, seed, seed[:2], {seed[0], seed[1], seed[1]},
		{seed[2], seed[1], seed[0]}} {
		data, err := proto.Marshal(&runtimeapi.ListContainersResponse{Containers: list})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		if len(data) > 0 {
			f.Add(data[:len(data)-1])
		}
	}
	last := ofContainers(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		list := &runtimeapi.ListContainersResponse{}
		a := answer{last: last, state: 6, labels: 8}
		if !a.isLast(data) || proto.Unmarshal(data, list) != nil {
			return
		}
		now := ofContainers(list.Containers)
		if len(now) != len(last) || len(list.Containers) != len(last) {
			t.Errorf("%d containers are taken for %d", len(list.Containers), len(last))
		}
		for id, c := range now {
			if was := last[id]; was.state != c.state || was.pod.UID != c.pod.UID {
				t.Errorf("%s is %+v and was %+v", id, c, was)
			}
		}
	})
}
