package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// devicePlugin offers devices that are /dev/null.
type devicePlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	resource string
	count    int
	// sick is a folder: a device that has a file there is unhealthy.
	sick string
}

// device offers devices until it is told to end, and registers again whenever the node's agent started again.
func device(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("device", flag.ContinueOnError)
	p := &devicePlugin{}
	flags.StringVar(&p.resource, "resource", "example.com/widget", "name of the resource")
	flags.IntVar(&p.count, "count", 2, "how many devices there are")
	flags.StringVar(&p.sick, "sick", "/sick", "folder with a file for every device that is unhealthy")
	dir := flags.String("dir", pluginapi.DevicePluginPath, "folder of the sockets")
	if err := flags.Parse(args); err != nil {
		return err
	}
	own, agent := filepath.Join(*dir, "story.sock"), filepath.Join(*dir, "kubelet.sock")
	for ctx.Err() == nil {
		if err := p.serve(ctx, own, agent); err != nil {
			fmt.Println(err)
		}
		pause(ctx)
	}
	return nil
}

// serve listens at own and registers with the agent, until the agent's socket is another one.
func (p *devicePlugin) serve(ctx context.Context, own, agent string) error {
	before, err := os.Stat(agent)
	if err != nil {
		return err
	}
	if err := os.Remove(own); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", own)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient("unix://"+agent, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(own), ResourceName: p.resource,
	}); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	fmt.Println("registered", p.resource)
	for pause(ctx) {
		// A new socket may have the inode of the old one.
		if now, err := os.Stat(agent); err != nil || !os.SameFile(before, now) || !now.ModTime().Equal(before.ModTime()) {
			return errors.New("the agent's socket changed")
		}
		if _, err := os.Stat(own); err != nil {
			return fmt.Errorf("an agent that started again removed the socket: %w", err)
		}
	}
	return nil
}

func (p *devicePlugin) GetDevicePluginOptions(context.Context,
	*pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, nil
}

// ListAndWatch tells the devices, and again whenever one falls ill or is well again.
func (p *devicePlugin) ListAndWatch(
	_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse],
) error {
	last := ""
	for first := true; first || pause(stream.Context()); first = false {
		list := make([]*pluginapi.Device, p.count)
		for i := range list {
			list[i] = &pluginapi.Device{ID: fmt.Sprintf("widget-%d", i), Health: pluginapi.Healthy}
			if _, err := os.Stat(filepath.Join(p.sick, list[i].ID)); err == nil {
				list[i].Health = pluginapi.Unhealthy
			}
		}
		if text := fmt.Sprint(list); text != last {
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
			last = text
		}
	}
	return nil
}

// GetPreferredAllocation likes high numbers.
func (p *devicePlugin) GetPreferredAllocation(_ context.Context,
	r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	answer := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		ids := slices.Clone(c.AvailableDeviceIDs)
		slices.Sort(ids)
		slices.Reverse(ids)
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{
			DeviceIDs: ids[:min(len(ids), int(c.AllocationSize))],
		})
	}
	return answer, nil
}

func (p *devicePlugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		one := &pluginapi.ContainerAllocateResponse{
			Envs:        map[string]string{"WIDGETS": strings.Join(c.DevicesIds, ",")},
			Mounts:      []*pluginapi.Mount{{ContainerPath: "/widget/hostname", HostPath: "/etc/hostname", ReadOnly: true}},
			Annotations: map[string]string{"example.com/widgets": strings.Join(c.DevicesIds, ",")},
		}
		for _, id := range c.DevicesIds {
			one.Devices = append(one.Devices, &pluginapi.DeviceSpec{
				ContainerPath: "/dev/" + id,
				HostPath:      "/dev/null",
				Permissions:   "rw",
			})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}

func (p *devicePlugin) PreStartContainer(_ context.Context,
	r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	fmt.Println("prepared", strings.Join(r.DevicesIds, ","))
	return &pluginapi.PreStartContainerResponse{}, nil
}
