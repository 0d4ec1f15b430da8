package standalone

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/beside/opening"
	"github.com/everynode/everynode/internal/controller/daemonset/placements"
	"github.com/everynode/everynode/internal/controller/nodestartup"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
)

// addStartups adds what closes and opens nodes by NodeStartups, in place of the cluster's DaemonSet controller. Its
// writes of Nodes do not wait behind those of pods: a node is to be closed before it is ready.
func addStartups(mgr manager.Manager, fenced *restclient.Config, recorder record.EventRecorder,
	metrics prometheus.Registerer, placements *placements.Board) error {
	writing, err := kubernetes.NewForConfig(fenced)
	if err != nil {
		return fmt.Errorf("make a client for Nodes: %w", err)
	}
	own, err := everynode.NewForConfig(fenced)
	if err != nil {
		return fmt.Errorf("make a client for NodeStartups: %w", err)
	}
	writer := stays{opening.Writer{API: writing}}
	loop, err := nodestartup.New(mgr.GetCache(), nodestartup.Config{Startups: own.NodeStartups(), Gates: writer,
		Setting: plan.InPlace, Marker: writer, Placements: placements, Events: recorder, Registerer: metrics})
	if err != nil {
		return fmt.Errorf("set up what opens nodes: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("startups"))
		asker := opening.Asker{API: writing, Own: own, Rules: "examples/controller-rbac.yaml"}
		if !asker.Await(ctx) {
			return nil
		}
		return loop.Start(ctx)
	}))
}

// stays writes for a controller that nobody has leave the cluster: who switches it off deletes NodeStartups before.
type stays struct{ opening.Writer }

// Leaving implements nodestartup.Marker.
func (stays) Leaving(context.Context) (bool, error) { return false, nil }
