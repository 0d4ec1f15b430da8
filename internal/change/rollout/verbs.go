package rollout

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/approval"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// Verb changes a rollout's spec as somebody wants it, and says what that does. Its
// error says why there is nothing to do, and what else there is.
type Verb func(r *v1alpha1.DaemonSetRollout) (done string, err error)

// Pause lets nothing new begin.
func Pause(r *v1alpha1.DaemonSetRollout) (string, error) {
	if r.Spec.Paused {
		return "is paused already", nil
	}
	r.Spec.Paused = true
	return "is paused: no further node is changed; what is under way ends", nil
}

// Resume ends a pause.
func Resume(r *v1alpha1.DaemonSetRollout) (string, error) {
	if !r.Spec.Paused {
		if r.Status.Phase == v1alpha1.PhasePaused {
			return "", fmt.Errorf("nobody paused it; it stands still because %s", r.Status.Message)
		}
		return "is not paused", nil
	}
	r.Spec.Paused = false
	return "goes on", nil
}

// Approve lets the step after the named one begin; "" is the one that waits. With a
// revision, or the number of a change, it approves that one only.
func Approve(step, revision string, change int64) Verb {
	return func(r *v1alpha1.DaemonSetRollout) (string, error) {
		s, due := &r.Status, approval.Due(r)
		var err error
		switch {
		case s.TargetRevision == "" || s.TargetRevision == s.StableRevision:
			err = errors.New("there is nothing to approve: no change is under way")
		case moved("approved", revision, r) != nil:
			err = moved("approved", revision, r)
		case change != 0 && change != due:
			err = fmt.Errorf("nothing is approved: this is change %d by now, not %d", due, change)
		default:
			err = mayApprove(s, step)
		}
		if err != nil {
			return "", err
		}
		digest, err := digestOf(r)
		if err != nil {
			return "", err
		}
		if due == s.Change && rolloutpolicy.HasFailed(s, s.TargetRevision) {
			return "", fmt.Errorf("revision %s has failed: retry it first; an approval from before that is void",
				s.TargetRevision)
		}
		step := cmp.Or(step, s.Step)
		r.Spec.Approved = &v1alpha1.StepApproval{Revision: s.TargetRevision, Digest: digest, Step: step, Change: due}
		switch step {
		case v1alpha1.AllSteps:
			return "is approved: every step of revision " + s.TargetRevision, nil
		case v1alpha1.WithoutPolicy:
			return "goes on without a policy, to revision " + s.TargetRevision, nil
		}
		return fmt.Sprintf("is approved: revision %s goes on after step %s", s.TargetRevision, step), nil
	}
}

// mayApprove says why a step cannot be approved; "" is the one that waits.
func mayApprove(s *v1alpha1.DaemonSetRolloutStatus, step string) error {
	switch {
	case step == v1alpha1.AllSteps:
	case step == v1alpha1.WithoutPolicy && s.Phase != v1alpha1.PhasePaused:
		return fmt.Errorf("its policy is not gone: it is %s (%s)", s.Phase, s.Message)
	case step == v1alpha1.WithoutPolicy:
	case step == "" && s.Phase != v1alpha1.PhaseWaitingForApproval:
		return fmt.Errorf(
			"there is nothing to approve: it is %s (%s); --step NAME and --all approve in advance", s.Phase, s.Message,
		)
	case step != "" && !slices.ContainsFunc(s.Steps, func(o v1alpha1.StepStatus) bool { return o.Name == step }):
		return fmt.Errorf("there is no step %q; the steps are %s", step, stepNames(s.Steps))
	}
	return nil
}

// ApprovePlacement approves placement rules, by the hash that a refused write names. They may be written from then on,
// and no others but those that are stored.
func ApprovePlacement(hash string) Verb {
	return func(r *v1alpha1.DaemonSetRollout) (string, error) {
		raw, err := hex.DecodeString(strings.TrimPrefix(hash, "sha256:"))
		if err != nil || len(raw) != sha256.Size || !strings.HasPrefix(hash, "sha256:") {
			return "", fmt.Errorf("%q is no placement; the refusal of the write names it, as sha256:...", hash)
		}
		if r.Annotations == nil {
			r.Annotations = map[string]string{}
		}
		r.Annotations[v1alpha1.ApprovedPlacement] = hash
		return "may be placed by " + hash + ": write it again", nil
	}
}

// maxNames is how many steps an error names.
const maxNames = 10

func stepNames(steps []v1alpha1.StepStatus) string {
	var names []string
	for i := range steps[:min(len(steps), maxNames)] {
		names = append(names, steps[i].Name)
	}
	text := strings.Join(names, ", ")
	if more := len(steps) - maxNames; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// moved is the error of who wants something of one revision, by its name or its digest, when the change is to
// another by now. No revision means any.
func moved(what, revision string, r *v1alpha1.DaemonSetRollout) error {
	if target := r.Status.TargetRevision; revision != "" && revision != target && revision != r.Status.TargetDigest {
		return fmt.Errorf("nothing is %s: the change is to revision %s by now, not to %s", what, orNone(target), revision)
	}
	return nil
}

// digestOf is what an approval, a retry or an abort names beside the target.
func digestOf(r *v1alpha1.DaemonSetRollout) (string, error) {
	if r.Status.TargetDigest == "" {
		return "", errors.New("its status has no targetDigest yet: try again in a moment")
	}
	return r.Status.TargetDigest, nil
}

// Retry tries a failed revision again. With a revision, it tries that one only.
func Retry(revision string) Verb {
	return func(r *v1alpha1.DaemonSetRollout) (string, error) {
		if err := moved("tried again", revision, r); err != nil {
			return "", err
		}
		return tryAgain(r)
	}
}

func tryAgain(r *v1alpha1.DaemonSetRollout) (string, error) {
	target := r.Status.TargetRevision
	i := slices.IndexFunc(r.Status.FailedRevisions, func(f v1alpha1.FailedRevision) bool { return f.Revision == target })
	if target == "" || i < 0 {
		return "", errors.New("there is nothing to try again: the present revision has not failed")
	}
	digest, err := digestOf(r)
	if err != nil {
		return "", err
	}
	count := r.Status.FailedRevisions[i].Retries
	if asked := r.Spec.Retry; asked != nil && asked.Revision == target {
		count = max(count, asked.Count)
	}
	r.Spec.Retry = &v1alpha1.Retry{Revision: target, Digest: digest, Count: count + 1}
	r.Spec.Abort = nil
	return "tries revision " + target + " again, from the first step", nil
}

// Abort takes all nodes back to the stable revision. With a revision, only if the change is to that one.
func Abort(revision string) Verb {
	return func(r *v1alpha1.DaemonSetRollout) (string, error) {
		if err := moved("aborted", revision, r); err != nil {
			return "", err
		}
		return goBack(r)
	}
}

func goBack(r *v1alpha1.DaemonSetRollout) (string, error) {
	s := &r.Status
	switch {
	case s.TargetRevision == "" || s.TargetRevision == s.StableRevision:
		return "", errors.New("there is nothing to abort: no change is under way")
	case s.StableRevision == "":
		return "", errors.New(
			"there is nothing to go back to: no revision was ever complete; pause it, or change the template",
		)
	case s.Phase == v1alpha1.PhaseRolledBack:
		return "goes back to revision " + s.StableRevision + " already", nil
	}
	digest, err := digestOf(r)
	if err != nil {
		return "", err
	}
	r.Spec.Abort = &v1alpha1.Abort{Revision: s.TargetRevision, Digest: digest}
	return fmt.Sprintf(
		"is aborted: all nodes go back to revision %s; a change of the template begins again", s.StableRevision,
	), nil
}
