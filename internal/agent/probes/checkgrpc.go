package probes

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// health asks a gRPC server how a service is, by the standard health protocol.
func (c checker) health(ctx context.Context, address, service string, timeout time.Duration) outcome {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithUserAgent(c.userAgent),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return newDialer(timeout).DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		return outcome{output: fmt.Sprintf("error: failed to connect service at %q: %v", address, err)}
	}
	defer connection.Close()
	answer, err := healthpb.NewHealthClient(connection).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	switch status.Code(err) {
	case codes.OK:
		if answer.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return outcome{success: true, output: "service healthy"}
		}
		return outcome{output: fmt.Sprintf("service unhealthy (responded with %q)", answer.GetStatus())}
	case codes.Unimplemented:
		return outcome{
			output: fmt.Sprintf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s",
				status.Convert(err).Message()),
		}
	case codes.DeadlineExceeded:
		return outcome{output: fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)}
	case codes.Unavailable:
		return outcome{
			output: fmt.Sprintf("error: failed to connect service at %q: %s", address, status.Convert(err).Message()),
		}
	}
	return outcome{output: fmt.Sprintf("error: health rpc probe failed: %v", err)}
}
