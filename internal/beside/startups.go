package beside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/joining"
	"github.com/everynode/everynode/internal/beside/opening"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/controller/nodestartup"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	startup "github.com/everynode/everynode/internal/objects/nodestartup"
)

// startups knows whether there are NodeStartups.
type startups struct {
	// objects are read once they can be; nil before.
	objects atomic.Pointer[client.Reader]
}

// askAboutNodes reports whether the API server is to ask about Nodes that join: while there is a NodeStartup. Until
// that is known, as when another replica has just begun to lead, it stays as it is.
func (g *Guest) askAboutNodes(ctx context.Context) (bool, error) {
	objects := g.startups.objects.Load()
	if objects != nil {
		var list v1alpha1.NodeStartupList
		err := (*objects).List(ctx, &list)
		if err != nil {
			return false, fmt.Errorf("list NodeStartups: %w", err)
		}
		return len(list.Items) > 0, nil
	}
	have, err := g.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, registration.Name,
		metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find out whether Nodes are asked about: %w", err)
	}
	return slices.ContainsFunc(have.Webhooks, func(w admissionregistration.MutatingWebhook) bool {
		return w.Name == registration.NodesWebhook
	}), nil
}

// leadStartups opens nodes that start, and closes those whose machine has started again, until ctx ends. It begins when
// the API has the kind, and we the rights.
func (g *Guest) leadStartups(ctx context.Context, objects cache.Cache) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("startups"))
	asker := opening.Asker{API: g.client, Own: g.own, Rules: "examples/beside-rbac.yaml"}
	if !asker.Await(ctx) {
		return nil
	}
	synced, err := follow(ctx, objects, &v1alpha1.NodeStartup{}, func(any) { g.nudge() }, func(any) { g.nudge() })
	if err != nil {
		return err
	}
	writer, err := g.gateWriter()
	if err != nil {
		return err
	}
	own, err := everynode.NewForConfig(g.cfg.Writing)
	if err != nil {
		return fmt.Errorf("make a client for NodeStartups: %w", err)
	}
	loop, err := nodestartup.New(objects, nodestartup.Config{Startups: own.NodeStartups(), Gates: writer,
		Setting: plan.NextTo, Marker: writer, Events: g.cfg.Recorder, Registerer: g.cfg.Registerer})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-synced.Done():
	}
	known := client.Reader(objects)
	g.startups.objects.Store(&known)
	g.nudge()
	return loop.Start(ctx)
}

// gateWriter changes Nodes for NodeStartups.
type gateWriter struct {
	opening.Writer
	guest *Guest

	mu     sync.Mutex // guards all below
	asked  time.Time
	leaves bool
}

func (g *Guest) gateWriter() (*gateWriter, error) {
	writing, err := kubernetes.NewForConfig(g.cfg.Writing)
	if err != nil {
		return nil, fmt.Errorf("make a client for Nodes: %w", err)
	}
	return &gateWriter{Writer: opening.Writer{API: writing}, guest: g}, nil
}

// leavingFor is how long it is not asked again whether somebody leaves.
const leavingFor = time.Second

// Leaving implements nodestartup.Marker.
func (w *gateWriter) Leaving(ctx context.Context) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.asked) >= leavingFor {
		held, err := w.guest.certificate(ctx)
		if err != nil {
			return false, err
		}
		w.asked, w.leaves = now, isLeaving(held, now)
	}
	return w.leaves, nil
}

// unpolice deletes the policy by which an API server closes nodes itself, whatever its name is: nobody would open them.
// Whoever may not look for one cannot know that there is none, and leaves nothing; nor does who may not delete it.
func (l *Leaver) unpolice(ctx context.Context) error {
	found, err := opening.Policies(ctx, l.client)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: a policy may close nodes that nobody would open: %w; apply examples/beside-rbac.yaml "+
			"again, or upgrade the chart", errRefused, err)
	case err != nil:
		return err
	}
	for _, p := range found {
		if p.Name != registration.StartupPolicyName && !registration.IsStartupPolicy(p.Is) && len(p.Bindings) > 0 {
			return fmt.Errorf("%w: the policy %s closes nodes that are created, and nobody would open them. It is not the one "+
				"that Everynode prints: delete it, or have it leave the taint out", errRefused, p.Name)
		}
	}
	// The account's right is to delete that of the printed name, which comes last: where another stays nothing changes.
	for _, p := range found {
		err := p.Delete(ctx, l.client)
		switch {
		case apierrors.IsForbidden(err):
			return fmt.Errorf("%w: a policy closes nodes that nobody would open: %w; kubectl delete "+
				"mutatingadmissionpolicies,mutatingadmissionpolicybindings %s", errRefused, err, p.Name)
		case err != nil:
			return fmt.Errorf("delete the policy %s, by which the API server closes nodes: %w", p.Name, err)
		}
		fmt.Fprintf(l.Out, "The policy %s, by which the API server closed nodes itself, is deleted. Have nothing apply it "+
			"again: nobody would open these nodes.\n", p.Name)
	}
	return nil
}

// openNodes takes everything of NodeStartups off all nodes. A controller that runs may write for a moment still, and an
// API server ask the webhook or go by the policy: it is looked until there is nothing, and twice at least. It begins
// when those that run know that somebody leaves, for they would take a node without a mark for one that nobody was
// asked about.
func (l *Leaver) openNodes(ctx context.Context) error {
	until := time.Time{}
	for first := true; ; first = false {
		list, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list the nodes that NodeStartups have closed: %w", err)
		}
		left, err := l.openThese(ctx, list.Items, !first)
		if left == 0 && !first || err != nil {
			return err
		}
		switch {
		case first:
		case until.IsZero():
			until = time.Now().Add(heedWithin) // of many nodes it takes longer
		case time.Now().After(until):
			return errors.New("nodes go on being closed or marked: does a controller still run?")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for nodes to be open: %w", ctx.Err())
		case <-time.After(2 * leavingFor):
		}
	}
}

// openThese takes everything off these nodes, or only counts those on which there is something.
func (l *Leaver) openThese(ctx context.Context, nodes []corev1.Node, really bool) (left int, err error) {
	var which []*corev1.Node
	var patches [][]byte
	for i := range nodes {
		raw, err := joining.Leave(&nodes[i])
		if err != nil {
			return 0, fmt.Errorf("open node %s: %w", nodes[i].Name, err)
		}
		if raw != nil {
			which, patches = append(which, &nodes[i]), append(patches, raw)
		}
	}
	if !really {
		return len(which), nil
	}
	var opened atomic.Int64
	err = l.each(ctx, len(which), "nodes are without marks", func(ctx context.Context, i int) error {
		n := which[i]
		err := opening.Writer{API: l.client}.Patch(ctx, n.Name, patches[i])
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the next look knows more
		case err != nil:
			return fmt.Errorf("open node %s: %w", n.Name, err)
		case startup.TaintOf(n.Spec.Taints) != nil:
			opened.Add(1)
		}
		return nil
	})
	if n := opened.Load(); n > 0 {
		fmt.Fprintf(l.Out, "%d nodes that a NodeStartup had closed are opened.\n", n)
	}
	return len(which), err
}
