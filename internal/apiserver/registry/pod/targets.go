package pod

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/everynode/everynode/internal/storage/provided"
)

// Targets are the nodes that pods are bound to. A binding that names its node's UID was decided for that very node:
// another one that was made under the name since may be closed to the pod. The zero value knows no nodes.
type Targets struct {
	nodes storage.Interface
	key   func(ctx context.Context, name string) (string, error)
}

// Follow says where the nodes are stored, and at which keys.
func (t *Targets) Follow(nodes storage.Interface, key func(ctx context.Context, name string) (string, error)) {
	t.nodes, t.key = nodes, key
}

// writesForTarget bounds how often a pod is written that is bound to a node which changes all the time.
const writesForTarget = 10

// while does a write that binds a pod, and has it succeed only while the node is there whose UID the target names, if
// it names one. The write calls isThere when all else is decided. fresh has the node read from the database in any
// case.
//
// A node that is in memory as it is in the database costs no read: the database compares its version when it writes.
func (t *Targets) while(ctx context.Context, target *corev1.ObjectReference, fresh bool,
	write func(ctx context.Context, isThere func() error) error) error {
	if target.UID == "" {
		return write(ctx, func() error { return nil })
	}
	for range writesForTarget {
		ctx, condition := provided.While(ctx)
		err := write(ctx, func() error { return t.isThere(ctx, target, fresh, condition) })
		if !hasChanged(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fresh = true // What is in memory was too old.
	}
	return fmt.Errorf("node %q changes faster than a pod can be bound to it; try again", target.Name)
}

// isThere says why the node that a target names by its UID is not there, and else has the writes depend on it.
func (t *Targets) isThere(ctx context.Context, target *corev1.ObjectReference, fresh bool,
	condition *provided.Condition) error {
	key, err := t.key(ctx, target.Name)
	if err != nil {
		return err
	}
	node := &corev1.Node{}
	if !fresh {
		err = t.nodes.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, node)
	}
	// Who decided may be ahead of what this server has heard.
	if fresh || err != nil || node.UID != target.UID {
		node = &corev1.Node{}
		err = t.nodes.Get(ctx, key, storage.GetOptions{}, node)
	}
	switch {
	case storage.IsNotFound(err):
		return fmt.Errorf("node %q with the UID %s, which the binding names, does not exist", target.Name, target.UID)
	case err != nil:
		return fmt.Errorf("read node %q, whose UID the binding names: %w", target.Name, err)
	case node.UID != target.UID:
		return fmt.Errorf("node %q is another one than that which the binding names: its UID is %s, not %s",
			target.Name, node.UID, target.UID)
	}
	version, err := t.nodes.Versioner().ObjectResourceVersion(node)
	if err != nil {
		return fmt.Errorf("read the version of node %q: %w", target.Name, err)
	}
	condition.Still(key, version)
	return nil
}

// hasChanged reports whether a write was refused because the node is not as it was seen.
func hasChanged(err error) bool {
	var changed interface{ Changed() string }
	return errors.As(err, &changed)
}
