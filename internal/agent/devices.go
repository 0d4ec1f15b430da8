package agent

import (
	"context"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/events"
)

// newDevices makes the node's side of device plugins.
func (a *Agent) newDevices(n *node) *devices.Manager {
	return devices.New(devices.Config{
		Dir: filepath.Join(a.cfg.KubeletDir, "device-plugins"), Clock: a.clk,
		Changed: func() { n.reporter.Check() },
		CDI:     func(ctx context.Context) (bool, error) { return n.runtime.KnowsCDI(ctx) },
	})
}

// reportDevices says why no pod can have devices, of plugins or by claims, if that is so.
func (a *Agent) reportDevices(ctx context.Context, n *node, ev events.Recorder) {
	if err := n.devices.Problem(); err != nil {
		klog.FromContext(ctx).Error(err, "No device plugin is accepted")
		ev.Node(a.cfg.NodeName, "InvalidDeviceCheckpoint", err.Error())
	}
	if err := n.claims.Problem(); err != nil {
		klog.FromContext(ctx).Error(err, "No resource claim is prepared")
		ev.Node(a.cfg.NodeName, "InvalidResourceClaims", err.Error())
	}
}
