package webhook

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/fresh"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// change is what the answers for all pods of a DaemonSet follow from. What is not there is nil. Those who are answered
// at one time share it.
type change struct {
	ds      *appsv1.DaemonSet
	rollout *v1alpha1.DaemonSetRollout
	// named is the policy that the rollout's status names.
	named *v1alpha1.RolloutPolicy
}

// changeOf is the change of a DaemonSet that is stored with OnDelete for a policy, without a rollout if there is none
// yet; nil if it is not stored so. What it is read from began to be read after this was called.
func (s *Server) changeOf(ctx context.Context, namespace string, of *metav1.OwnerReference) (*change, error) {
	key := types.NamespacedName{Namespace: namespace, Name: of.Name}
	read := func(ctx context.Context) (change, error) {
		ctx, cancel := context.WithTimeout(ctx, readWithin)
		defer cancel()
		return s.readChange(ctx, key)
	}
	is, err := s.changes.Get(ctx, key, read)
	if err != nil && ctx.Err() == nil { // many share a read, so that one failure would be that of all
		is, err = s.changes.Get(ctx, key, read)
	}
	switch {
	case err != nil:
		return nil, err
	case is.ds == nil, is.ds.UID != of.UID, !admit.Taken(admit.AsWritten(is.ds)):
		return nil, nil
	case is.rollout == nil:
	case is.rollout.Labels[rollouts.OwnerLabel] != string(of.UID):
		is.rollout = nil
	case meta.IsStatusConditionTrue(is.rollout.Status.Conditions, rollouts.PolicyGone):
		return nil, nil
	}
	return &is, nil
}

// readChange reads a DaemonSet, its rollout where a policy holds, and the policy that this names: all at one time where
// the last rollout named one.
func (s *Server) readChange(ctx context.Context, of types.NamespacedName) (is change, err error) {
	s.mu.Lock()
	guess := s.follows[of]
	s.mu.Unlock()
	set := func(ctx context.Context) (err error) {
		is.ds, err = found(s.cfg.Client.AppsV1().DaemonSets(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{}))
		return err
	}
	rollout := func(ctx context.Context) (err error) {
		is.rollout, err = found(s.cfg.Own.DaemonSetRollouts(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{}))
		return err
	}
	policy := func(ctx context.Context, name string) {
		p, err := found(s.cfg.Own.RolloutPolicies(of.Namespace).Get(ctx, name, metav1.GetOptions{}))
		is.named = p
		if err != nil {
			is.named = nil // not every answer goes by it; where one does, all policies are read
		}
	}
	if guess == "" {
		err = set(ctx)
		if err == nil && is.ds != nil && admit.Taken(is.ds) {
			err = rollout(ctx)
		}
	} else {
		var unread error
		together, reading := errgroup.WithContext(ctx)
		abreast := func(part func() error) {
			together.Go(func() error { return fresh.Calmly(part) })
		}
		abreast(func() error { return set(reading) })
		abreast(func() error {
			unread = rollout(reading)
			return nil
		})
		abreast(func() error {
			policy(reading, guess)
			return nil
		})
		err = together.Wait()
		if err == nil && is.ds != nil && admit.Taken(is.ds) {
			err = unread // of one that was given back it does not count
		}
	}
	name := is.names()
	if err == nil && name != "" && (name != guess || is.apart()) {
		policy(ctx, name)
	}
	if err != nil {
		return change{}, fmt.Errorf("read how far the change of DaemonSet %s is: %w", of, err)
	}
	s.locked(func() {
		if name != "" {
			s.follows[of] = name
		} else {
			delete(s.follows, of)
		}
	})
	return is, nil
}

// names is the name of the policy that the rollout's status names; "" if it names none.
func (c *change) names() string {
	if c.rollout == nil || c.rollout.Status.Policy == nil {
		return ""
	}
	return c.rollout.Status.Policy.Name
}

// apart reports whether the rollout's status speaks of another generation of the policy: what it says was written later
// than the policy was read, perhaps.
func (c *change) apart() bool {
	at := c.rollout.Status.Cutoffs
	return c.named != nil && at != nil && at.PolicyGeneration != c.named.Generation
}

// found makes of an object that is not there none.
func found[T any](obj *T, err error) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return obj, nil
}

// followed is the policy by which a change goes: that which its rollout names, as long as it still selects the
// DaemonSet. The leader takes no node by another one before the rollout names it. Where it names none that is there it
// is the one that counts now; nil if there is none.
func (s *Server) followed(ctx context.Context, is *change) (*v1alpha1.RolloutPolicy, error) {
	by, p := is.rollout.Status.Policy, is.named
	if by != nil && p != nil && p.UID == by.UID && rolloutpolicy.Selects(p, is.ds.Labels) {
		return p, nil
	}
	return s.policy(ctx, is.ds.Namespace, is.ds.Labels)
}

// policy is the one that counts for a DaemonSet with these labels; nil if there is none.
func (s *Server) policy(ctx context.Context, namespace string, labels map[string]string) (*v1alpha1.RolloutPolicy,
	error) {
	list, err := s.cfg.Own.RolloutPolicies(namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil // the kind was taken away, and its policies with it
	}
	if err != nil {
		return nil, fmt.Errorf("list the RolloutPolicies of namespace %s: %w", namespace, err)
	}
	policies := make([]*v1alpha1.RolloutPolicy, len(list.Items))
	for i := range list.Items {
		policies[i] = &list.Items[i]
	}
	return rolloutpolicy.Choose(policies, namespace, labels), nil
}
