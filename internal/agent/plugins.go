package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/everynode/everynode/internal/agent/claims"
	"github.com/everynode/everynode/internal/agent/csi"
	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/events"
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

// newClaims makes the node's side of dynamic resource allocation.
func (a *Agent) newClaims(n *node) *claims.Manager {
	return claims.New(claims.Config{
		File: filepath.Join(a.cfg.DataDir, "claims.json"),
		Claim: func(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
			claim, err := n.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("read it from the API: %w", err)
			}
			return claim, nil
		},
		Offers: offers{n.client, a.cfg.NodeName}, Clock: a.clk,
		CDI: func(ctx context.Context) (bool, error) { return n.runtime.KnowsCDI(ctx) },
	})
}

// offers are the ResourceSlices of the node.
type offers struct {
	client   kubernetes.Interface
	nodeName string
}

// List implements claims.Offers.
func (o offers) List(ctx context.Context) ([]resourcev1.ResourceSlice, error) {
	list, err := o.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, o.nodeName).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("ask the API: %w", err)
	}
	return list.Items, nil
}

// Delete implements claims.Offers.
func (o offers) Delete(ctx context.Context, name string) error {
	err := o.client.ResourceV1().ResourceSlices().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ask the API: %w", err)
	}
	return nil
}
