// Package rollout describes Everynode's own kinds, which say how the changes of
// DaemonSets travel: RolloutPolicy and DaemonSetRollout of everynode.io/v1alpha1.
package rollout

import (
	"context"
	"fmt"
	"time"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/change/approval"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// Policies names RolloutPolicy.
func Policies() resource.Kind {
	return resource.Kind{
		GroupVersion: v1alpha1.GroupVersion, Kind: "RolloutPolicy",
		Plural: "rolloutpolicies", Singular: "rolloutpolicy", ShortNames: []string{"rp"}, Categories: []string{"rollouts"},
	}
}

// Rollouts names DaemonSetRollout.
func Rollouts() resource.Kind {
	return resource.Kind{
		GroupVersion: v1alpha1.GroupVersion, Kind: "DaemonSetRollout",
		Plural: "daemonsetrollouts", Singular: "daemonsetrollout", ShortNames: []string{"dsr"},
		Categories: []string{"rollouts"},
	}
}

var (
	specPath   = field.NewPath("spec")
	statusPath = field.NewPath("status", "conditions")
)

// Definitions returns the two kinds. What they refuse, definitions of them refuse
// elsewhere too.
func Definitions() []resource.Definition {
	return []resource.Definition{
		resource.Of[v1alpha1.RolloutPolicy, v1alpha1.RolloutPolicyList](Policies(), resource.Rules[v1alpha1.RolloutPolicy]{
			Default: func(p *v1alpha1.RolloutPolicy) { rolloutpolicy.SetDefaults(&p.Spec) },
			Spec:    func(p *v1alpha1.RolloutPolicy) any { return &p.Spec },
			Status:  func(p *v1alpha1.RolloutPolicy) any { return &p.Status },
			Validate: func(_ context.Context, p *v1alpha1.RolloutPolicy) field.ErrorList {
				return rolloutpolicy.Validate(&p.Spec, specPath)
			},
			ValidateStatusUpdate: func(_ context.Context, p, _ *v1alpha1.RolloutPolicy) field.ErrorList {
				return metav1validation.ValidateConditions(p.Status.Conditions, statusPath)
			},
			WarningsOnCreate: func(_ context.Context, p *v1alpha1.RolloutPolicy) []string { return warnings(p) },
			WarningsOnUpdate: func(_ context.Context, p, _ *v1alpha1.RolloutPolicy) []string { return warnings(p) },
			Table:            policyTable,
		}),
		resource.Of[v1alpha1.DaemonSetRollout, v1alpha1.DaemonSetRolloutList](
			Rollouts(),
			resource.Rules[v1alpha1.DaemonSetRollout]{
				Spec:             func(r *v1alpha1.DaemonSetRollout) any { return &r.Spec },
				Status:           func(r *v1alpha1.DaemonSetRollout) any { return &r.Status },
				PrepareForUpdate: nameChange,
				Validate: func(_ context.Context, r *v1alpha1.DaemonSetRollout) field.ErrorList {
					return rolloutpolicy.ValidateRollout(&r.Spec, specPath)
				},
				WarningsOnUpdate: func(_ context.Context, r, _ *v1alpha1.DaemonSetRollout) []string { return voids(r) },
				ValidateStatusUpdate: func(_ context.Context, r, _ *v1alpha1.DaemonSetRollout) field.ErrorList {
					return metav1validation.ValidateConditions(r.Status.Conditions, statusPath)
				},
				Table: rolloutTable,
			},
		),
	}
}

// nameChange has an approval name the change that it is for, where who writes it does not. The controller cannot know
// that as well: it sees the approval later.
func nameChange(_ context.Context, r, old *v1alpha1.DaemonSetRollout) {
	r.Spec.Approved = approval.Written(r.Spec.Approved, old.Spec.Approved, approval.Due(r))
	if alike.Values(r.Spec, old.Spec) && (r.DeletionTimestamp == nil) == (old.DeletionTimestamp == nil) {
		r.Generation = old.Generation
	}
}

// voids warns of an approval of the target that approves nothing, since it is for another change to it. Who writes it
// once more as it is changes nothing.
func voids(r *v1alpha1.DaemonSetRollout) []string {
	a, s, due := r.Spec.Approved, &r.Status, approval.Due(r)
	if a == nil || a.Revision != s.TargetRevision || a.Digest != s.TargetDigest || a.Change == due {
		return nil
	}
	return []string{
		fmt.Sprintf("spec.approved names change %d, and this is change %d: it approves nothing", a.Change, due),
	}
}

// warnings says what no definition can refuse, such as a time zone that does not
// exist: the controller does not follow such a policy, and says so in a condition.
func warnings(p *v1alpha1.RolloutPolicy) []string {
	if _, err := rolloutpolicy.Compile(&p.Spec, time.LoadLocation); err != nil {
		return []string{"this policy cannot be followed: " + err.Error()}
	}
	return nil
}
