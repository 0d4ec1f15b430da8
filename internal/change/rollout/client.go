package rollout

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	apiclient "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// Client reaches the rollout of one DaemonSet.
type Client struct {
	core            kubernetes.Interface
	own             *apiclient.Client
	namespace, name string
}

// NewClient makes a client for a DaemonSet's rollout.
func NewClient(config *rest.Config, namespace, name string) (*Client, error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	own, err := apiclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Client{core: core, own: own, namespace: namespace, name: name}, nil
}

func (c *Client) String() string { return "daemonset " + c.namespace + "/" + c.name }

// Get returns the rollout. If there is none the error says why.
func (c *Client) Get(ctx context.Context) (*v1alpha1.DaemonSetRollout, error) {
	r, err := c.own.DaemonSetRollouts(c.namespace).Get(ctx, c.name, metav1.GetOptions{})
	switch {
	case err == nil:
		return r, nil
	case isUnknownKind(err):
		return nil, errors.New(
			"this cluster does not know rollouts; teach it with: everynode controller --print-crds | kubectl apply -f -",
		)
	case apierrors.IsNotFound(err):
		return nil, c.whyNone(ctx)
	}
	return nil, c.denied("look at its rollout", "get", err)
}

// isUnknownKind reports whether not the object is missing, but its kind.
func isUnknownKind(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// whyNone says why a DaemonSet has no rollout.
func (c *Client) whyNone(ctx context.Context) error {
	d, err := c.core.AppsV1().DaemonSets(c.namespace).Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no %s", c)
	}
	if err != nil {
		return fmt.Errorf("look for %s: %w", c, err)
	}
	policies, err := c.own.RolloutPolicies(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("look for the policy of %s: %w", c, err)
	}
	all := make([]*v1alpha1.RolloutPolicy, 0, len(policies.Items))
	for i := range policies.Items {
		all = append(all, &policies.Items[i])
	}
	if p := rolloutpolicy.Choose(all, c.namespace, d.Labels); p != nil {
		return fmt.Errorf(
			"the policy %s selects %s, and no controller has begun its rollout yet; is one running that knows policies?",
			p.Name, c,
		)
	}
	return fmt.Errorf(
		"no RolloutPolicy of the namespace selects %s, so it changes as in Kubernetes; see kubectl rollout status, or "+
			"write a policy",
		c,
	)
}

// denied says which right is missing, if one is.
func (c *Client) denied(what, verb string, err error) error {
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("%s: %s: %w", c, what, err)
	}
	role := "view"
	if verb != "get" {
		role = "admin"
	}
	return fmt.Errorf(
		"you may not %s of %s: that needs the right to %s daemonsetrollouts in namespace %s, which the role %s has",
		what, c, verb, c.namespace, role,
	)
}

// Do changes the rollout's spec by a verb, and returns what that does.
func (c *Client) Do(ctx context.Context, do Verb) (done string, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		r, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if done, err = do(r); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		_, err = c.update(ctx, r)
		return err
	})
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		err = c.denied("change the rollout", "update", err)
	}
	return done, err
}

// fieldManager is who wrote what people ask for.
const fieldManager = "everynode-rollout"

func (c *Client) update(ctx context.Context, r *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error) {
	return c.own.DaemonSetRollouts(c.namespace).Update(ctx, r, metav1.UpdateOptions{FieldManager: fieldManager})
}
