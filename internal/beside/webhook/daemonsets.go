package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// daemonSet answers for a DaemonSet that is written. One of which cannot be told whether it follows a policy is
// refused: a template that slips through goes to every node at once.
func (s *Server) daemonSet(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse,
	string) {
	write, err := writeOf(r)
	if err == nil {
		write.Returns = r.UserInfo.Username == s.cfg.Account
		write.Standing, err = s.standing(ctx, r.Namespace, write)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot tell how a DaemonSet is to be stored", "daemonSet",
			klog.KRef(r.Namespace, r.Name))
		return refused(err.Error()), "unknown"
	}
	stored := admit.DaemonSet(*write)
	if stored.Refusal != "" {
		return refused(stored.Refusal), "refused"
	}
	out := admitted()
	out.Patch = stored.Patch
	if stored.Warning != "" {
		out.Warnings = []string{stored.Warning}
	}
	if stored.Patch == nil {
		return out, "as written"
	}
	return out, "stored otherwise"
}

// placement answers for a DaemonSet that is placed otherwise than before.
func (s *Server) placement(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse,
	string) {
	write, err := writeOf(r)
	refusal := ""
	if err == nil && write.Old == nil {
		err = errors.New("it is not said how the DaemonSet was placed before")
	}
	var policy *v1alpha1.RolloutPolicy
	if err == nil {
		policy, err = s.policy(ctx, r.Namespace, write.New.Labels)
	}
	if err == nil && policy != nil {
		refusal, err = s.moves(ctx, write)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to find out whether a DaemonSet may be placed otherwise", "daemonSet",
			klog.KRef(r.Namespace, r.Name))
		return refused(err.Error()), "unknown"
	}
	if refusal != "" {
		return refused(refusal), "refused"
	}
	return admitted(), "as written"
}

// writeOf is what is written, and over what.
func writeOf(r *admissionv1.AdmissionRequest) (*admit.DaemonSetWrite, error) {
	w := &admit.DaemonSetWrite{New: &appsv1.DaemonSet{}}
	err := json.Unmarshal(r.Object.Raw, w.New)
	if err != nil {
		return nil, fmt.Errorf("read the DaemonSet: %w", err)
	}
	if r.Operation == admissionv1.Update {
		w.Old = &appsv1.DaemonSet{}
		err = json.Unmarshal(r.OldObject.Raw, w.Old)
		if err != nil {
			return nil, fmt.Errorf("read the DaemonSet as it was: %w", err)
		}
	}
	var options struct{ FieldManager string }
	if r.Options.Raw != nil {
		err = json.Unmarshal(r.Options.Raw, &options)
		if err != nil {
			return nil, fmt.Errorf("read the options of the write: %w", err)
		}
	}
	w.Manager = options.FieldManager
	return w, nil
}

// standing is how the DaemonSet stands to policies. For one that is taken over already a policy makes no difference.
// Its rollout is read all the same: by such writes is tried whether its pods can be answered for, before some are
// deleted.
func (s *Server) standing(ctx context.Context, namespace string, w *admit.DaemonSetWrite) (admit.Standing, error) {
	if w.Old != nil && admit.Taken(w.Old) {
		_, err := found(s.cfg.Own.DaemonSetRollouts(namespace).Get(ctx, w.Old.Name, metav1.GetOptions{}))
		if err != nil {
			return admit.Frozen, fmt.Errorf("read DaemonSetRollout %s/%s: %w", namespace, w.Old.Name, err)
		}
		return admit.Frozen, nil
	}
	policy, err := s.policy(ctx, namespace, w.New.Labels)
	switch {
	case err != nil:
		return admit.Free, err
	case policy != nil:
		return admit.Follows, nil
	case admit.Taken(w.New):
		return admit.Frozen, nil
	}
	return admit.Free, nil
}

// moves says why a write is refused that changes which nodes the DaemonSet is for; "" if it is not.
func (s *Server) moves(ctx context.Context, w *admit.DaemonSetWrite) (string, error) {
	m := admit.Moves{From: &w.Old.Spec.Template.Spec, To: &w.New.Spec.Template.Spec}
	s.mu.Lock()
	nodes := s.steps.Nodes()
	s.mu.Unlock()
	refusal, err := m.Refusal(nodes)
	if err != nil || refusal == "" {
		return "", err
	}
	ds := w.Old
	rollout, err := s.cfg.Own.DaemonSetRollouts(ds.Namespace).Get(ctx, ds.Name, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return "", fmt.Errorf("read DaemonSetRollout %s/%s: %w", ds.Namespace, ds.Name, err)
	case err == nil && rollout.Labels[rollouts.OwnerLabel] == string(ds.UID):
		m.Approved = rollout.Annotations[v1alpha1.ApprovedPlacement]
	}
	refusal, err = m.Refusal(nodes)
	if err != nil || refusal == "" {
		return "", err
	}
	hash, err := m.Hash()
	return fmt.Sprintf("%s: everynode rollout approve daemonset/%s -n %s --placement %s", refusal, ds.Name, ds.Namespace,
		hash), err
}
