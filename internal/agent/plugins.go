package agent

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/everynode/everynode/internal/agent/csi"
	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/plugins"
	"github.com/everynode/everynode/internal/agent/podresources"
)

// newDrivers makes the node's side of storage drivers.
func (a *Agent) newDrivers(n *node) *csi.Drivers {
	return csi.New(csi.Config{NodeName: a.cfg.NodeName, Client: n.client,
		PodsDir: filepath.Join(a.cfg.KubeletDir, "pods")})
}

// newPlugins makes what notices storage drivers, DRA drivers, and device plugins of the newer kind.
func (a *Agent) newPlugins(n *node) *plugins.Watcher {
	return plugins.New(plugins.Config{
		Dir: filepath.Join(a.cfg.KubeletDir, "plugins_registry"), Clock: a.clk,
		Handlers: map[string]plugins.Handler{registerapi.CSIPlugin: n.drivers,
			registerapi.DevicePlugin: devicePlugins{n.devices}, registerapi.DRAPlugin: n.claims},
	})
}

// newPodResources makes what tells programs on the node which devices pods have.
func (a *Agent) newPodResources(n *node) *podresources.Server {
	return podresources.New(podresources.Config{
		Dir: filepath.Join(a.cfg.KubeletDir, "pod-resources"), Pods: n.pods.ActivePods, Held: n.devices.Held,
		Healthy: n.devices.Healthy, Clock: a.clk,
	})
}

// devicePlugins takes device plugins that register in the folder of all plugins.
type devicePlugins struct{ *devices.Manager }

// Register implements plugins.Handler.
func (d devicePlugins) Register(ctx context.Context, name, socket string, versions []string) error {
	if err := d.Validate(name, versions); err != nil {
		return err
	}
	return d.Manager.Register(ctx, name, socket)
}

// Deregister implements plugins.Handler.
func (d devicePlugins) Deregister(_ context.Context, name string) { d.Manager.Deregister(name) }

// driverRetry is how long to wait for the drivers of volumes and devices that pods of an earlier run left.
const driverRetry = time.Minute

// sweepDrivers gives back, once, the volumes and devices that pods left that are no more. Their drivers may be pods of
// the node, and come later.
func (n *node) sweepDrivers(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-n.pods.Known():
	}
	for {
		err := errors.Join(n.drivers.Sweep(ctx, n.pods.Remains), n.claims.Sweep(ctx, n.pods.Remains))
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Info("Could not give back volumes and devices of pods of an earlier run, will try again", "err",
			err)
		select {
		case <-ctx.Done():
			return
		case <-n.clock.After(driverRetry):
		}
	}
}
