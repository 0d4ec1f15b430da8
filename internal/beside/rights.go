package beside

import (
	"context"
	"errors"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// rightsEvery is the time between two looks at our own rights.
const rightsEvery = 30 * time.Second

// errNoPatch says that the rights are those of a release before.
var errNoPatch = errors.New("the account may not patch pods: apply examples/beside-rbac.yaml again, or upgrade " +
	"the chart")

// lookAtRights finds out whether we may let pods through a gate. The rights may be those of a release that did not need
// to: pods would wait for ever then. While that cannot be found out, what was known last holds.
func (g *Guest) lookAtRights(ctx context.Context) {
	review, err := g.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Resource: "pods", Verb: "patch",
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot find out whether pods may be let through a gate")
		return
	}
	if !review.Status.Allowed {
		klog.FromContext(ctx).Error(errNoPatch, "Images are not pinned: each pod pulls what its tag names")
	}
	g.webhook.LetPodsWait(review.Status.Allowed)
}

func (g *Guest) keepLookingAtRights(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rightsEvery):
			g.lookAtRights(ctx)
		}
	}
}
