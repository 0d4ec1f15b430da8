package devices

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/everynode/everynode/internal/agent/devices/ledger"
)

const (
	// connectTimeout is how long a plugin that registers has to answer the first call, callTimeout how long any has for
	// the others that pods wait for.
	connectTimeout = 10 * time.Second
	callTimeout    = 2 * time.Minute
	preStart       = pluginapi.KubeletPreStartContainerRPCTimeoutInSecs * time.Second
)

// plugin is the connection to one device plugin.
type plugin struct {
	resource string
	conn     *grpc.ClientConn
	client   pluginapi.DevicePluginClient
	options  *pluginapi.DevicePluginOptions
}

// connect calls the plugin that listens at the socket, and takes it for the resource in place of one that was there
// before.
func (m *Manager) connect(ctx context.Context, resource, socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to the device plugin of %s at %s: %w", resource, socket, err)
	}
	p := &plugin{resource: resource, conn: conn, client: pluginapi.NewDevicePluginClient(conn)}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	p.options, err = p.client.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("ask the device plugin of %s at %s for its options: %w", resource, socket, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	life := m.life
	if life == nil || life.Err() != nil {
		_ = conn.Close()
		return fmt.Errorf("register the device plugin of %s: the node does not take any now", resource)
	}
	if old := m.plugins[resource]; old != nil {
		_ = old.conn.Close()
	}
	m.plugins[resource] = p
	m.watching.Go(func() { m.watch(life, p) })
	return nil
}

// watch takes in what the plugin lists until it goes away.
func (m *Manager) watch(ctx context.Context, p *plugin) {
	defer p.conn.Close()
	logger := klog.FromContext(ctx).WithValues("resource", p.resource)
	logger.Info("A device plugin came")
	stream, err := p.client.ListAndWatch(ctx, &pluginapi.Empty{})
	for err == nil {
		var list *pluginapi.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			m.listed(p, list.Devices)
		}
	}
	if ctx.Err() != nil {
		return // the agent ends, and its plugins know nothing of that
	}
	logger.Info("A device plugin went away", "err", err)
	m.lost(p)
}

func (m *Manager) listed(p *plugin, list []*pluginapi.Device) {
	devices := make([]ledger.Device, len(list))
	for i, d := range list {
		devices[i] = ledger.Device{ID: d.ID, Healthy: d.Health == pluginapi.Healthy}
		for _, node := range d.GetTopology().GetNodes() {
			devices[i].Nodes = append(devices[i].Nodes, node.ID)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plugins[p.resource] != p {
		return
	}
	m.ledger.List(p.resource, devices)
	m.note()
	m.cfg.Changed()
}

// lost notes that the plugin went away, unless another one took its place.
func (m *Manager) lost(p *plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plugins[p.resource] != p {
		return
	}
	m.ledger.Lose(p.resource, m.cfg.Clock.Now())
	m.cfg.Changed()
}

// prefer asks the plugin which of the devices that may be given it would give.
func (p *plugin) prefer(ctx context.Context, c ledger.Choice) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := p.client.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: append(append([]string{}, c.Must...), c.Free...), MustIncludeDeviceIDs: c.Must,
			AllocationSize: int32(c.Amount),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if len(answer.ContainerResponses) == 0 {
		return nil, nil
	}
	return answer.ContainerResponses[0].DeviceIDs, nil
}

// allocate tells the plugin that a container gets the devices, and returns what it says about how to use them.
func (p *plugin) allocate(ctx context.Context, ids []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := p.client.Allocate(ctx, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	if err != nil {
		return nil, err
	}
	if len(answer.ContainerResponses) == 0 {
		return nil, fmt.Errorf("no containers return in allocation response %v", answer)
	}
	raw, err := proto.Marshal(answer.ContainerResponses[0])
	if err != nil {
		return nil, fmt.Errorf("keep what the device plugin of %s said: %w", p.resource, err)
	}
	return append([]byte{}, raw...), nil
}

// prepare has the plugin do what it must before a container with the devices starts.
func (p *plugin) prepare(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, preStart)
	defer cancel()
	_, err := p.client.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: ids})
	if err != nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
	}
	return nil
}
