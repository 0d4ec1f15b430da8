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
	"strings"
	"syscall"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// storageDriver makes volumes in memory that hold what it was told: a file for every attribute and secret.
type storageDriver struct {
	csiapi.UnimplementedIdentityServer
	csiapi.UnimplementedNodeServer
	name, node string
}

// driver serves a storage driver until it is told to end.
func driver(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("driver", flag.ContinueOnError)
	d := &storageDriver{}
	flags.StringVar(&d.name, "drivername", "story.example.com", "name of the driver")
	flags.StringVar(&d.node, "nodeid", os.Getenv("NODE_NAME"), "what the driver calls the node")
	endpoint := flags.String("endpoint", "unix:///csi/csi.sock", "where to listen")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return serveAt(ctx, strings.TrimPrefix(*endpoint, "unix://"), func(s *grpc.Server) {
		csiapi.RegisterIdentityServer(s, d)
		csiapi.RegisterNodeServer(s, d)
	})
}

// serveAt listens at a socket, which it removes, until it is told to end.
func serveAt(ctx context.Context, socket string, register func(*grpc.Server)) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	register(server)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	fmt.Println("listening at", socket)
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func (d *storageDriver) GetPluginInfo(context.Context,
	*csiapi.GetPluginInfoRequest) (*csiapi.GetPluginInfoResponse, error) {
	return &csiapi.GetPluginInfoResponse{Name: d.name, VendorVersion: "v1"}, nil
}

func (d *storageDriver) NodeGetInfo(context.Context, *csiapi.NodeGetInfoRequest) (*csiapi.NodeGetInfoResponse, error) {
	return &csiapi.NodeGetInfoResponse{NodeId: d.node, MaxVolumesPerNode: 16,
		AccessibleTopology: &csiapi.Topology{Segments: map[string]string{"topology.example.com/rack": "r1"}}}, nil
}

func (d *storageDriver) NodePublishVolume(_ context.Context,
	r *csiapi.NodePublishVolumeRequest) (*csiapi.NodePublishVolumeResponse, error) {
	if err := os.MkdirAll(r.TargetPath, 0o755); err != nil {
		return nil, err
	}
	if err := syscall.Mount("tmpfs", r.TargetPath, "tmpfs", 0, "size=1m"); err != nil {
		return nil, err
	}
	for _, files := range []map[string]string{r.VolumeContext, r.Secrets} {
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(r.TargetPath, strings.ReplaceAll(name, "/", "_")), []byte(content+
				"\n"), 0o444); err != nil {
				return nil, err
			}
		}
	}
	fmt.Println("published", r.VolumeContext["csi.storage.k8s.io/pod.name"])
	return &csiapi.NodePublishVolumeResponse{}, nil
}

func (d *storageDriver) NodeUnpublishVolume(_ context.Context,
	r *csiapi.NodeUnpublishVolumeRequest) (*csiapi.NodeUnpublishVolumeResponse, error) {
	if err := syscall.Unmount(r.TargetPath, 0); err != nil && !errors.Is(err, syscall.EINVAL) &&
		!errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	fmt.Println("unpublished", r.VolumeId)
	return &csiapi.NodeUnpublishVolumeResponse{}, os.RemoveAll(r.TargetPath)
}

// driverRegistrar tells the node about a driver.
type driverRegistrar struct {
	registerapi.UnimplementedRegistrationServer
	name, path string
	refused    context.CancelCauseFunc
}

// registrar asks the driver for its name and registers it until it is told to end.
func registrar(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("registrar", flag.ContinueOnError)
	r := &driverRegistrar{}
	address := flags.String("csi-address", "/csi/csi.sock", "where the driver listens")
	flags.StringVar(&r.path, "kubelet-registration-path", "", "where the node finds the driver")
	dir := flags.String("plugin-registration-path", "/registration", "folder of the sockets of plugins")
	if err := flags.Parse(args); err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	info, err := csiapi.NewIdentityClient(conn).GetPluginInfo(ctx, &csiapi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err := errors.Join(err, conn.Close()); err != nil {
		return err
	}
	r.name = info.Name
	ctx, r.refused = context.WithCancelCause(ctx)
	if err := serveAt(ctx, filepath.Join(*dir, r.name+"-reg.sock"), func(s *grpc.Server) {
		registerapi.RegisterRegistrationServer(s, r)
	}); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func (r *driverRegistrar) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type:              registerapi.CSIPlugin,
		Name:              r.name,
		Endpoint:          r.path,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *driverRegistrar) NotifyRegistrationStatus(_ context.Context,
	s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	fmt.Println("registered:", s.PluginRegistered, s.Error)
	if !s.PluginRegistered {
		r.refused(errors.New(s.Error))
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
