package metricsapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver/nodecall"
	"github.com/everynode/everynode/internal/node/usage"
)

// How long an agent may take, how many are asked at one time, and how much one may say, in bytes.
const (
	agentPatience = 10 * time.Second
	agentsAtOnce  = 100
	maxSummary    = 16 << 20
)

// collector asks agents.
type collector struct{ agents *nodecall.Caller }

// summaries asks the agents of the nodes, all together. Nodes that do not answer are missing in the result.
func (c *collector) summaries(ctx context.Context, nodes []*corev1.Node) map[string]*usage.Summary {
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := make(map[string]*usage.Summary, len(nodes))
	slots := make(chan struct{}, agentsAtOnce)
	for _, n := range nodes {
		location, ok := c.agents.URL(n, usage.Path, url.Values{usage.Brief: {"true"}})
		if !ok {
			continue // simulated
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s, err := c.ask(ctx, location.String())
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

// client never goes where an agent sends it on to.
func (c *collector) client() *http.Client {
	return &http.Client{Transport: c.agents.Transport(), CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

func (c *collector) ask(ctx context.Context, location string) (*usage.Summary, error) {
	ctx, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, location, nil)
	if err != nil {
		return nil, fmt.Errorf("make a request to %s: %w", location, err)
	}
	response, err := c.client().Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", location, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", location, response.Status)
	}
	out := &usage.Summary{}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxSummary)).Decode(out); err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", location, err)
	}
	return out, nil
}
