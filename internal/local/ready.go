package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/local/gate"
	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/process"
	nodefacts "github.com/everynode/everynode/internal/node"
)

// How long the parts may take to become ready, and how often they are asked.
const (
	readyPatience = 3 * time.Minute
	askEvery      = 100 * time.Millisecond
	askPatience   = 5 * time.Second
)

// waitServer waits until the API says that it is ready.
func (c *cluster) waitServer(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	last := errors.New("it has not written its kubeconfig")
	for {
		if err := gate.AskReady(ctx, c.plan.Kubeconfig(), "", askPatience); err == nil {
			return nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			last = err
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the server ended (%w): %s; see %s", err, process.LastWords(c.plan.ServerLog()),
				c.plan.ServerLog())
		case <-ctx.Done():
			return fmt.Errorf("the server did not become ready: %w (%w); see %s", ctx.Err(), last, c.plan.ServerLog())
		case <-time.After(askEvery):
		}
	}
}

// waitNodes waits until all nodes of the plan are ready and returns them. Nodes
// that the cluster has no more are deleted from the API.
func (c *cluster) waitNodes(ctx context.Context) ([]corev1.Node, error) {
	client, err := gate.ClientFor(c.plan.Kubeconfig())
	if err != nil {
		return nil, err
	}
	for _, name := range c.gone {
		if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("delete node %s, which the cluster has no more: %w", name, err)
		}
	}
	limited, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	ends := map[string]int{}
	for {
		list, err := client.CoreV1().Nodes().List(limited, metav1.ListOptions{})
		if err == nil {
			var renewed map[string]time.Time
			renewed, err = renewals(limited, client)
			if ready := readyNodes(c.plan, list.Items, renewed, c.begun); err == nil && len(ready) >= c.plan.NodeCount() {
				return ready, nil
			}
		}
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, c.explainNodes(list, err)
		case <-time.After(askEvery):
		}
		if err := c.agentFailure(ends); err != nil {
			return nil, err
		}
	}
}

// renewals tells when each node last renewed its lease.
func renewals(ctx context.Context, client kubernetes.Interface) (map[string]time.Time, error) {
	leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list node leases: %w", err)
	}
	renewed := make(map[string]time.Time, len(leases.Items))
	for i := range leases.Items {
		if at := leases.Items[i].Spec.RenewTime; at != nil {
			renewed[leases.Items[i].Name] = at.Time
		}
	}
	return renewed, nil
}

// readyNodes are the nodes of the plan that are ready, or have joined if their
// pods' network is somebody else's, in the order of names. A
// node that has not given a sign of life since the cluster began says what it
// said when the cluster ran last. Simulated nodes live in the server, under
// names of their own.
func readyNodes(p layout.Plan, nodes []corev1.Node, renewed map[string]time.Time, begun time.Time) []corev1.Node {
	var ready []corev1.Node
	for i := range nodes {
		name := nodes[i].Name
		alive := p.Simulate > 0 ||
			slices.ContainsFunc(p.Nodes, func(n layout.Node) bool { return n.Name == name }) && renewed[name].After(begun)
		if alive && (p.PodNetwork == layout.ForeignPodNetwork || nodefacts.IsReady(&nodes[i])) {
			ready = append(ready, nodes[i])
		}
	}
	slices.SortFunc(ready, func(a, b corev1.Node) int { return compareNames(a.Name, b.Name) })
	return ready
}

// compareNames orders node-2 before node-10.
func compareNames(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// hopeless is how often an agent may end before its node was ever ready.
const hopeless = 3

// agentFailure counts the agents that ended by themselves, and reports one that
// did so too often: starting it again would end the same way.
func (c *cluster) agentFailure(ends map[string]int) error {
	for name, ended := range c.agentEnded {
		select {
		case err := <-ended:
			ends[name]++
			if ends[name] >= hopeless {
				log := c.plan.AgentLog(name)
				return fmt.Errorf("the agent of %s ended %d times (%w): %s; see %s", name, hopeless, err, process.LastWords(log),
					log)
			}
		default:
		}
	}
	return nil
}

// explainNodes says which nodes did not become ready, and why.
func (c *cluster) explainNodes(list *corev1.NodeList, err error) error {
	if err != nil {
		return fmt.Errorf("the nodes did not become ready within %s: list nodes: %w", readyPatience, err)
	}
	var why []string
	for _, planned := range c.plan.Nodes {
		reason := "it has not joined, see " + c.plan.AgentLog(planned.Name)
		for i := range list.Items {
			if list.Items[i].Name != planned.Name {
				continue
			}
			if condition := nodefacts.Condition(&list.Items[i], corev1.NodeReady); condition != nil {
				reason = condition.Message
			}
			if nodefacts.IsReady(&list.Items[i]) {
				reason = ""
			}
		}
		if reason != "" {
			why = append(why, planned.Name+": "+reason)
		}
	}
	if len(why) == 0 {
		why = append(why, fmt.Sprintf("%d nodes exist", len(list.Items)))
	}
	return fmt.Errorf("the nodes did not become ready within %s (%s)", readyPatience, strings.Join(why, "; "))
}
