package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Status is how a rollout is looked at.
type Status struct {
	View
	// Follow goes on until nothing more will change by itself.
	Follow bool
	// Terminal shows progress in one line that changes; otherwise each change is a
	// line.
	Terminal bool
	// JSON writes states as JSON, one a line.
	JSON bool
	Out  io.Writer
}

// Run shows the state, and follows it if wanted. Its error says that the rollout did
// not end well.
func (s Status) Run(ctx context.Context, c *Client) error {
	r, err := c.Get(ctx)
	if err != nil {
		return err
	}
	generation, err := c.generation(ctx)
	if err != nil {
		return err
	}
	state := StateOf(r, generation)
	if !s.Follow || state.Finished {
		if err := s.final(state); err != nil || !s.Follow {
			return err
		}
		return verdict(state)
	}
	shown := ""
	last, err := c.follow(ctx, func(r *v1alpha1.DaemonSetRollout) (bool, error) {
		state := StateOf(r, generation)
		return state.Finished, s.change(state, &shown)
	}, r)
	if s.Terminal && shown != "" {
		fmt.Fprint(s.Out, "\r\x1b[K")
	}
	switch {
	case wait.Interrupted(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s is not done yet: %s", c, Change(StateOf(last, generation)))
	case err != nil:
		return err
	}
	state = StateOf(last, generation)
	if s.Terminal && !s.JSON {
		if err := s.Show(s.Out, state); err != nil {
			return err
		}
	}
	return verdict(state)
}

// generation is that of the DaemonSet; 0 if it is gone.
func (c *Client) generation(ctx context.Context) (int64, error) {
	d, err := c.core.AppsV1().DaemonSets(c.namespace).Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", c, err)
	}
	return d.Generation, nil
}

// follow calls seen with each state until that says that it is the last, and returns
// what it was called with at last.
func (c *Client) follow(
	ctx context.Context, seen func(*v1alpha1.DaemonSetRollout) (bool, error), last *v1alpha1.DaemonSetRollout,
) (*v1alpha1.DaemonSetRollout, error) {
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String()
	rollouts := c.own.DaemonSetRollouts(c.namespace)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = one
			return rollouts.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = one
			return rollouts.Watch(ctx, o)
		},
	}
	_, err := watchtools.UntilWithSync(ctx, source, &v1alpha1.DaemonSetRollout{}, nil, func(e watch.Event) (bool, error) {
		r, ok := e.Object.(*v1alpha1.DaemonSetRollout)
		switch {
		case !ok:
			return false, nil
		case e.Type == watch.Deleted:
			return false, fmt.Errorf("the rollout of %s is gone", c)
		}
		last = r
		return seen(r)
	})
	return last, err
}

// change shows a state that differs from the one before.
func (s Status) change(state State, shown *string) error {
	text := Change(state)
	if text == *shown {
		return nil
	}
	*shown = text
	var err error
	switch {
	case s.JSON:
		err = s.json(state)
	case s.Terminal:
		_, err = fmt.Fprint(s.Out, "\r\x1b[K"+s.Line(state))
	default:
		_, err = fmt.Fprintln(s.Out, text)
	}
	return err
}

func (s Status) final(state State) error {
	if s.JSON {
		return s.json(state)
	}
	return s.Show(s.Out, state)
}

func (s Status) json(state State) error {
	raw, err := json.Marshal(state)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "%s\n", raw)
	return err
}

// verdict is an error for a rollout that ended badly.
func verdict(s State) error {
	if s.Finished && s.Phase != v1alpha1.PhaseComplete {
		return fmt.Errorf("daemonset %s/%s is %s: %s", s.Namespace, s.DaemonSet, s.Phase, s.Message)
	}
	return nil
}
