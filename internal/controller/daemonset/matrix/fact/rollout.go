package fact

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
)

// Rollout is the policy that a DaemonSet's changes follow, and its rollout.
// While a matrix knows one, the rollout's course says which revision each node is to
// have and which may be changed; the DaemonSet's own budget is not asked.
type Rollout struct {
	UID types.UID // of the DaemonSet
	// PolicyUID is the policy's: rows of the same one share its pace.
	PolicyUID types.UID
	// Policy is nil when there is none to follow; Following and Why then say more.
	Policy    *rolloutpolicy.Policy
	Following course.Following
	Why       string
	// Generation is that of Spec, which people wrote.
	Generation int64
	Spec       v1alpha1.DaemonSetRolloutSpec
	// Status is what the API holds, nil if the rollout is not stored. It matters when
	// the rollout is new to the matrix: after that the matrix knows what it wrote.
	Status *v1alpha1.DaemonSetRolloutStatus
	// PolicyGeneration is that of Policy, where another controller makes the pods; 0 where none does.
	PolicyGeneration int64 `json:",omitempty"`
	// Followed is the policy that is followed, or was last, for the rollout's status.
	Followed *v1alpha1.FollowedPolicy `json:",omitempty"`
	// PausedWhy says why Spec is paused if nobody asked for it, "" if somebody did. A
	// rollout that is to be made is made paused then.
	PausedWhy string `json:",omitempty"`
	// Unread tells that there may be a rollout that cannot be read: it is not written. ToldOf tells that the
	// DaemonSet's own condition says that there is one.
	Unread bool `json:",omitempty"`
	ToldOf bool `json:",omitempty"`
	// Newer tells that the rollout holds what a newer program wrote and this one does not know: it is not written.
	Newer bool `json:",omitempty"`
}

// RolloutGone says that the changes of a DaemonSet follow no policy any more.
type RolloutGone types.UID

// Verb is the event's word in scripts.
func (Rollout) Verb() string { return "rollout" }

// Verb is the event's word in scripts.
func (RolloutGone) Verb() string { return "delete-rollout" }
