package external

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/everynode/everynode/internal/testenv/freeport"
)

// lacking is an etcd server that is real but for what is taken away from it.
func lacking(t *testing.T, options ...grpc.ServerOption) string {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.UnsafeNoFsync, cfg.GRPCAdditionalServerOptions = t.TempDir(), true, options
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	var urls []url.URL
	for range 2 {
		port, err := freeport.Take()
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls, cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = urls[:1], urls[:1], urls[1:], urls[1:]
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return urls[0].String()
}

// ofVersion has the server say that it is of another version.
func ofVersion(version string) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo,
		handle grpc.UnaryHandler) (any, error) {
		answer, err := handle(ctx, r)
		if s, ok := answer.(*pb.StatusResponse); ok {
			s.Version = version
		}
		return answer, err
	})
}

// lackingMethod has the server not know a method.
func lackingMethod(method string) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(ctx context.Context, r any, info *grpc.UnaryServerInfo,
		handle grpc.UnaryHandler) (any, error) {
		if strings.HasSuffix(info.FullMethod, method) {
			return nil, status.Error(codes.Unimplemented, "unknown method "+method)
		}
		return handle(ctx, r)
	})
}

// deaf hears no request for the progress of a watch.
type deaf struct{ grpc.ServerStream }

func (d deaf) RecvMsg(m any) error {
	for {
		if err := d.ServerStream.RecvMsg(m); err != nil {
			return err
		}
		if r, ok := m.(*pb.WatchRequest); !ok || r.GetProgressRequest() == nil {
			return nil
		}
	}
}

// An etcd that lacks what the API needs is refused, whatever it says that it is.
func TestProbe(t *testing.T) {
	silent := grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo,
		handle grpc.StreamHandler) error {
		return handle(srv, deaf{s})
	})
	for name, c := range map[string]struct {
		lacks grpc.ServerOption
		want  string
	}{
		"nothing lacks":         {ofVersion("3.6.1"), ""},
		"3.5 that is good":      {ofVersion("3.5.13"), ""},
		"3.4 that is good":      {ofVersion("3.4.31"), ""},
		"3.4 that is too old":   {ofVersion("3.4.23"), "is of version 3.4.23, which may tell a watch"},
		"3.5 that is too old":   {ofVersion("3.5.12"), "is of version 3.5.12, which may tell a watch"},
		"no version":            {ofVersion("new"), `has the version "new"`},
		"no progress":           {silent, "does not tell the progress of watches on request; the API needs etcd 3.4.31"},
		"no leases":             {lackingMethod("LeaseGrant"), "lacks leases, which events end with"},
		"no transactions":       {lackingMethod("Txn"), "lacks transactions in transactions"},
		"nobody may read":       {lackingMethod("Range"), "read from etcd below /registry"},
		"nobody is told status": {lackingMethod("Status"), "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var config storagebackend.Config
			config.Prefix, config.Transport.ServerList = "/registry", []string{lacking(t, c.lacks)}
			err := Probe(t.Context(), config)
			if (err == nil) != (c.want == "") || err != nil &&
				(!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
		})
	}
}
