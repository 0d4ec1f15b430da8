package admit

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// Made is a pod that is there.
type Made struct {
	// Revision is what the function of that name returns.
	Revision string
	Created  time.Time
	// At is the step of its node.
	At rolloutpolicy.Step
}

// Revision is the revision of a pod as the rollout calls it: by its template alone while no content is a part of its
// revisions, and with the variants that the pod was made by, as far as admission says so on it. A label of another
// template is the author's own.
func Revision(s *v1alpha1.DaemonSetRolloutStatus, labels map[string]string) string {
	is, said := content.RevisionOf(labels[appsv1.ControllerRevisionHashLabelKey], labels), labels[content.RevisionLabel]
	if content.IDOf(s.StableRevision) == "" && content.IDOf(s.TargetRevision) == "" {
		is = content.TemplateOf(is)
	}
	if content.TemplateOf(said) != content.TemplateOf(is) {
		return is
	}
	return content.WithVariants(is, content.VariantsOf(said))
}

// MayBeWrong reports whether pods of a DaemonSet can have a revision that is not their node's: what
// kube-controller-manager makes is of the newest template, and refers to no copies of content.
func MayBeWrong(s *v1alpha1.DaemonSetRolloutStatus) bool {
	return s.StableRevision != "" && (plain(s.TargetRevision) != plain(s.StableRevision) ||
		content.IDOf(s.StableRevision) != "")
}

// IsWrong reports whether a pod has a revision that its node was not to have when it was made: nobody answered the API
// server then. What got a revision in its turn that failed later is not wrong, nor is what was the target
// once: its node keeps that until its step begins. What has variants was given them: it had its turn.
func IsWrong(s *v1alpha1.DaemonSetRolloutStatus, policy *rolloutpolicy.Policy, p Made) (bool, error) {
	is, stable, target := plain(p.Revision), plain(s.StableRevision), plain(s.TargetRevision)
	if !MayBeWrong(s) || is == stable {
		return false, nil
	}
	if content.IDOf(s.StableRevision) != "" && content.IDOf(s.TargetRevision) != "" && content.IDOf(is) == "" {
		return true, nil
	}
	if target == stable {
		return false, nil // what is left of an earlier change
	}
	if is != target {
		return failedBefore(s, p), nil
	}
	open, known := policy.StepNamed(s.Step)
	if !known {
		return false, fmt.Errorf("the policy has no step %q, which the rollout says has begun", s.Step)
	}
	if p.At.Compare(open) > 0 && content.VariantsOf(p.Revision) == "" {
		return true, nil
	}
	return failedBefore(s, p), nil
}

// failedBefore reports whether a pod's revision, which fails together with its variants, had failed when it was made.
func failedBefore(s *v1alpha1.DaemonSetRolloutStatus, p Made) bool {
	at := slices.IndexFunc(s.FailedRevisions, func(f v1alpha1.FailedRevision) bool { return f.Revision == p.Revision })
	return at >= 0 && p.Created.After(s.FailedRevisions[at].Time.Time)
}
