package rollouts

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// newsWithin is how long the news of a rollout's end may take to come when the API does not have it any more. They tell
// what somebody wrote into it last, such as that no other one is to be made. Of one that was made and deleted while no
// watch was open there will be none.
const newsWithin = 5 * time.Second

// Written is what became of a write of where a rollout stands: of the one that there Was, nil for none, which Is now as
// it stands there, nil if not all of it was written.
type Written struct {
	Was, Is *v1alpha1.DaemonSetRollout
	Outcome action.Outcome
}

func (Written) event() {}

// OutcomeOf is what became of a write of a rollout that ended with an error: Gone if the API does not have it. One that
// does not know the kind says nothing of its objects.
func OutcomeOf(err error) action.Outcome {
	if apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return action.Gone
	}
	return action.Failed
}

func (b *Book) onWritten(e Written) {
	if e.Is != nil {
		b.onRollout(Rollout{Object: e.Is})
		return
	}
	if e.Outcome != action.Gone || e.Was == nil {
		return
	}
	have := b.rollouts[nameOf(e.Was)]
	if have == nil || have.UID != e.Was.UID {
		return
	}
	since, known := b.missing[have.UID]
	switch {
	case !known:
		b.missing[have.UID] = b.now
	case b.now.Sub(since) >= newsWithin:
		b.onRollout(Rollout{Object: have, Gone: true})
	}
}
