// Package podresources tells programs on the node which devices its pods have. Exporters of devices' metrics ask for
// that, to name the pod behind a device. It answers at a socket, and keeps nothing.
package podresources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/socket"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Config says what there is to tell. Every field is needed.
type Config struct {
	// Dir is the folder of the socket, /var/lib/kubelet/pod-resources on nodes.
	Dir string
	// Pods lists the pods that take room on the node.
	Pods func() []*corev1.Pod
	// Held lists the devices of a pod, Healthy those that pods can have.
	Held    func(pod types.UID) []devices.Held
	Healthy func() []devices.Held
	Clock   clock.Clock
}

// Server answers.
type Server struct {
	api.UnimplementedPodResourcesListerServer
	cfg Config
}

// New returns a server; Run does the work.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// Run answers until ctx ends. It fails when somebody removes the socket.
func (s *Server) Run(ctx context.Context) error {
	if err := os.MkdirAll(s.cfg.Dir, 0o750); err != nil {
		return fmt.Errorf("make the folder of pods' resources: %w", err)
	}
	path := filepath.Join(s.cfg.Dir, "kubelet.sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket of an earlier run: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen for questions about pods' resources: %w", err)
	}
	server := grpc.NewServer()
	api.RegisterPodResourcesListerServer(server, s)
	err = socket.Serve(ctx, path, s.cfg.Clock, func() error { return server.Serve(listener) }, server.Stop)
	if err != nil {
		return fmt.Errorf("answer questions about pods' resources: %w", err)
	}
	return nil
}

// List tells about all pods.
func (s *Server) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	out := &api.ListPodResourcesResponse{}
	for _, pod := range s.cfg.Pods() {
		out.PodResources = append(out.PodResources, s.describe(pod))
	}
	return out, nil
}

// Get tells about one pod.
func (s *Server) Get(_ context.Context, r *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	for _, pod := range s.cfg.Pods() {
		if pod.Name == r.PodName && pod.Namespace == r.PodNamespace {
			return &api.GetPodResourcesResponse{PodResources: s.describe(pod)}, nil
		}
	}
	return nil, grpcstatus.Errorf(codes.NotFound, "pod %s in namespace %s not found", r.PodName, r.PodNamespace)
}

// GetAllocatableResources tells what pods can have.
func (s *Server) GetAllocatableResources(context.Context,
	*api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	out := &api.AllocatableResourcesResponse{}
	for _, d := range s.cfg.Healthy() {
		out.Devices = append(out.Devices, device(d))
	}
	return out, nil
}

// describe leaves out init containers that end before the others start.
func (s *Server) describe(pod *corev1.Pod) *api.PodResources {
	out := &api.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	held := s.cfg.Held(pod.UID)
	add := func(name string) {
		c := &api.ContainerResources{Name: name}
		for _, d := range held {
			if d.Container == name {
				c.Devices = append(c.Devices, device(d))
			}
		}
		out.Containers = append(out.Containers, c)
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podfacts.IsSidecar(c) {
			add(c.Name)
		}
	}
	for i := range pod.Spec.Containers {
		add(pod.Spec.Containers[i].Name)
	}
	return out
}

func device(d devices.Held) *api.ContainerDevices {
	out := &api.ContainerDevices{ResourceName: d.Resource, DeviceIds: []string{d.ID}}
	if len(d.Nodes) > 0 {
		out.Topology = &api.TopologyInfo{}
		for _, node := range d.Nodes {
			out.Topology.Nodes = append(out.Topology.Nodes, &api.NUMANode{ID: node})
		}
	}
	return out
}
