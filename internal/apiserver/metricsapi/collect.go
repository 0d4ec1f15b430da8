package metricsapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/node/usage"
)

// How long an agent may take, how many are asked at one time, and how much one may say, in bytes.
const (
	agentPatience = 10 * time.Second
	agentsAtOnce  = 100
	maxSummary    = 16 << 20
)

// collector asks agents.
type collector struct{ client *http.Client }

// summaries asks the agents of the nodes, all together. Nodes that do not answer are missing in the result.
func (c *collector) summaries(ctx context.Context, nodes []*corev1.Node) map[string]*usage.Summary {
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := make(map[string]*usage.Summary, len(nodes))
	slots := make(chan struct{}, agentsAtOnce)
	for _, n := range nodes {
		address := node.AgentAddress(n)
		if address == "" {
			continue // simulated
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s, err := c.ask(ctx, address)
			if err != nil {
				klog.FromContext(ctx).V(2).Info("A node does not say what it uses", "node", n.Name, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[n.Name] = s
		})
	}
	wg.Wait()
	return out
}

func (c *collector) ask(ctx context.Context, address string) (*usage.Summary, error) {
	ctx, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+usage.Path, nil)
	if err != nil {
		return nil, fmt.Errorf("make a request to the agent at %s: %w", address, err)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the agent at %s: %w", address, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the agent at %s answers %s", address, response.Status)
	}
	out := &usage.Summary{}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxSummary)).Decode(out); err != nil {
		return nil, fmt.Errorf("read the answer of the agent at %s: %w", address, err)
	}
	return out, nil
}
