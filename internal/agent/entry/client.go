package entry

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/sources"
)

// NewClient returns a client that nothing but the API server slows down.
func NewClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = "everynode-agent"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return client, nil
}

// followInterval is how often the node looks where the API servers are.
const followInterval = 10 * time.Second

// FollowServers keeps where the API servers are, until ctx ends.
func FollowServers(ctx context.Context, clk clock.WithTicker, identity *join.Identity, s *sources.Sources) {
	for {
		identity.Learn(ctx, s.APIServers())
		select {
		case <-ctx.Done():
			return
		case <-clk.After(followInterval):
		}
	}
}

// UnlessEnded drops an error that comes from being told to end.
func UnlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
