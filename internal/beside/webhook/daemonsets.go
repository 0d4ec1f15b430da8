package webhook

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/beside/admit"
)

// daemonSet answers for a DaemonSet that is written. One of which cannot be told whether it follows a policy is
// refused: a template that slips through goes to every node at once.
func (s *Server) daemonSet(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse,
	string) {
	write, err := s.read(ctx, r)
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

// read says what is written, over what, and which policies there are.
func (s *Server) read(ctx context.Context, r *admissionv1.AdmissionRequest) (*admit.DaemonSetWrite, error) {
	w := &admit.DaemonSetWrite{New: &appsv1.DaemonSet{}, Returns: r.UserInfo.Username == s.cfg.Account}
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
	policy, err := s.policy(ctx, r.Namespace, w.New.Labels)
	if err != nil {
		return nil, err
	}
	switch {
	case policy != nil:
		w.Standing = admit.Follows
	case admit.Taken(w.New), w.Old != nil && admit.Taken(w.Old):
		w.Standing = admit.Frozen
	}
	return w, nil
}
