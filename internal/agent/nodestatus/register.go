package nodestatus

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// register creates the Node or brings the labels of an existing one up to date. It goes on trying until ctx ends,
// because the server may be away; an error is one that trying won't heal.
func (r *Reporter) register(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 7*time.Second) {
		err := r.tryRegister(ctx)
		if err == nil {
			logger.Info("Registered node", "node", r.cfg.NodeName)
			return nil
		}
		if apierrors.IsInvalid(err) {
			return fmt.Errorf("register: %w", err)
		}
		if ctx.Err() == nil {
			logger.Error(err, "Node cannot be registered", "node", r.cfg.NodeName, "retryIn", pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.cfg.Clock.After(pause):
		}
	}
}

func (r *Reporter) tryRegister(ctx context.Context) error {
	nodes := r.cfg.Client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, r.cfg.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return r.create(ctx)
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", r.cfg.NodeName, err)
	}
	changed := node.DeepCopy()
	if !setLabels(changed, r.cfg.labels()) {
		return nil
	}
	if _, err := nodes.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("label node %s: %w", r.cfg.NodeName, err)
	}
	return nil
}

// create makes the Node with a first status, so that nobody sees it without conditions.
func (r *Reporter) create(ctx context.Context) error {
	f, err := r.gather(ctx)
	if err != nil {
		return err
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.cfg.NodeName},
		Spec:       corev1.NodeSpec{Taints: r.cfg.Taints},
	}
	setLabels(node, r.cfg.labels())
	// The first word on the Node is that it isn't ready; the status written next says more, and makes the events.
	f.runtimeErr = errNotAsked
	node.Status = build(r.cfg, corev1.NodeStatus{}, f, r.cfg.Clock.Now())
	if r.cfg.Making != nil {
		if err := r.cfg.Making(ctx); err != nil {
			return fmt.Errorf("create node %s: %w", r.cfg.NodeName, err)
		}
	}
	if _, err := r.cfg.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node %s: %w", r.cfg.NodeName, err)
	}
	r.made = true
	return nil
}

// setLabels sets labels on node and reports whether that changed anything.
func setLabels(node *corev1.Node, labels map[string]string) (changed bool) {
	for name, value := range labels {
		if old, ok := node.Labels[name]; ok && old == value {
			continue
		}
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		node.Labels[name] = value
		changed = true
	}
	return changed
}
