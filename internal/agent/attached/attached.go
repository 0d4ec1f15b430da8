// Package attached puts together what programs on the node add to it: storage drivers, device plugins and DRA drivers,
// the folder in which they register, and the socket at which others ask which devices pods have.
package attached

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/claims"
	"github.com/everynode/everynode/internal/agent/csi"
	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/plugins"
)

// Config is what these parts need of the node.
type Config struct {
	NodeName, KubeletDir, DataDir string
	Client                        kubernetes.Interface
	Clock                         clock.WithTicker
	// Changed is called when the devices of the node have changed.
	Changed func()
	// KnowsCDI reports whether the container runtime can give containers devices by their CDI names.
	KnowsCDI func(ctx context.Context) (bool, error)
}

// Attached are the parts. None of them runs yet.
type Attached struct {
	Devices *devices.Manager
	Drivers *csi.Drivers
	Claims  *claims.Manager
	Plugins *plugins.Watcher

	clock clock.WithTicker
}

// New makes the parts.
func New(c Config) *Attached {
	a := &Attached{
		clock: c.Clock,
		Devices: devices.New(devices.Config{
			Dir: filepath.Join(c.KubeletDir, "device-plugins"), Clock: c.Clock, Changed: c.Changed, CDI: c.KnowsCDI,
		}),
		Drivers: csi.New(csi.Config{
			NodeName: c.NodeName, Client: c.Client, PodsDir: filepath.Join(c.KubeletDir, "pods"),
		}),
		Claims: newClaims(c),
	}
	a.Plugins = plugins.New(plugins.Config{
		Dir: filepath.Join(c.KubeletDir, "plugins_registry"), Clock: c.Clock,
		Handlers: map[string]plugins.Handler{
			registerapi.CSIPlugin:    a.Drivers,
			registerapi.DevicePlugin: devicePlugins{a.Devices},
			registerapi.DRAPlugin:    a.Claims,
		},
	})
	return a
}

// newClaims makes the node's side of dynamic resource allocation.
func newClaims(c Config) *claims.Manager {
	return claims.New(claims.Config{
		File: filepath.Join(c.DataDir, "claims.json"),
		Claim: func(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
			claim, err := c.Client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("read it from the API: %w", err)
			}
			return claim, nil
		},
		Offers: offers{c.Client, c.NodeName}, Clock: c.Clock, CDI: c.KnowsCDI,
	})
}

// Report says why no pod can have devices, of plugins or by claims, if that is so.
func (a *Attached) Report(ctx context.Context, problem func(reason, message string)) {
	if err := a.Devices.Problem(); err != nil {
		klog.FromContext(ctx).Error(err, "No device plugin is accepted")
		problem("InvalidDeviceCheckpoint", err.Error())
	}
	if err := a.Claims.Problem(); err != nil {
		klog.FromContext(ctx).Error(err, "No resource claim is prepared")
		problem("InvalidResourceClaims", err.Error())
	}
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

// Sweep gives back, once, the volumes and devices that pods left that are no more: those of which nothing remains once
// the pods are known. Their drivers may be pods of the node, and come later.
func (a *Attached) Sweep(ctx context.Context, known <-chan struct{}, remains func(types.UID) bool) {
	select {
	case <-ctx.Done():
		return
	case <-known:
	}
	for {
		err := errors.Join(a.Drivers.Sweep(ctx, remains), a.Claims.Sweep(ctx, remains))
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Info("Could not give back volumes and devices of pods of an earlier run, will try again", "err",
			err)
		select {
		case <-ctx.Done():
			return
		case <-a.clock.After(driverRetry):
		}
	}
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
