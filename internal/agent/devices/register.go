package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/everynode/everynode/internal/agent/devices/ledger"
	"github.com/everynode/everynode/internal/agent/socket"
)

// socketName is the socket at which plugins register, in the folder of theirs.
const socketName = "kubelet.sock"

// Run takes registrations of plugins and watches them until ctx ends. It fails when somebody removes the socket.
func (m *Manager) Run(ctx context.Context) error {
	listener, err := m.listen()
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	m.mu.Lock()
	m.life = ctx
	m.mu.Unlock()
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, registrar{manager: m})
	defer func() {
		m.mu.Lock()
		m.life = nil // nobody begins to watch from now on
		m.mu.Unlock()
		end()
		m.watching.Wait()
	}()
	path := filepath.Join(m.cfg.Dir, socketName)
	err = socket.Serve(ctx, path, m.cfg.Clock, func() error { return server.Serve(listener) }, server.Stop)
	if err != nil {
		return fmt.Errorf("take registrations of device plugins: %w", err)
	}
	return nil
}

// listen removes the sockets of an earlier life of the agent, by which plugins know that they must register again, and
// makes a new one.
func (m *Manager) listen() (net.Listener, error) {
	if err := os.MkdirAll(m.cfg.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the folder of device plugins: %w", err)
	}
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("read the folder of device plugins: %w", err)
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			continue
		}
		if err := os.Remove(filepath.Join(m.cfg.Dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove the socket of an earlier device plugin: %w", err)
		}
	}
	listener, err := net.Listen("unix", filepath.Join(m.cfg.Dir, socketName))
	if err != nil {
		return nil, fmt.Errorf("listen for device plugins: %w", err)
	}
	return listener, nil
}

// registrar is the service that plugins call.
type registrar struct {
	pluginapi.UnimplementedRegistrationServer
	manager *Manager
}

// Register takes a plugin that listens already.
func (r registrar) Register(ctx context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	m := r.manager
	err := m.Validate(request.ResourceName, []string{request.Version})
	switch {
	case err != nil:
	case request.Endpoint == "" || filepath.Base(request.Endpoint) != request.Endpoint:
		err = fmt.Errorf("the endpoint %q is not the name of a socket in %s", request.Endpoint, m.cfg.Dir)
	default:
		if err = m.connect(ctx, request.ResourceName, filepath.Join(m.cfg.Dir, request.Endpoint)); err == nil {
			return &pluginapi.Empty{}, nil
		}
	}
	klog.FromContext(ctx).Error(err, "A device plugin was refused", "resource", request.ResourceName)
	return nil, grpcstatus.Error(codes.Unknown, err.Error())
}

// Validate says why a plugin of the resource, which speaks these versions, cannot be taken; nil if it can.
func (m *Manager) Validate(resource string, versions []string) error {
	switch {
	case m.broken != nil:
		return m.broken
	case !slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(pluginapi.SupportedVersions[:], v) }):
		return fmt.Errorf(
			"requested API version %q is not supported by kubelet. Supported version is %q",
			versions, pluginapi.SupportedVersions,
		)
	case !ledger.IsExtended(resource) || len(validation.IsQualifiedName(resource)) > 0:
		return fmt.Errorf("the ResourceName %q is invalid", resource)
	}
	return nil
}

// Register takes the plugin of the resource that listens at the socket, wherever that is.
func (m *Manager) Register(ctx context.Context, resource, socket string) error {
	return m.connect(ctx, resource, socket)
}

// Deregister forgets the plugin of the resource: it went away.
func (m *Manager) Deregister(resource string) {
	m.mu.Lock()
	p := m.plugins[resource]
	m.mu.Unlock()
	if p != nil {
		m.lost(p)
		_ = p.conn.Close()
	}
}
