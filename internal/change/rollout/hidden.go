package rollout

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Hidden says why nobody can tell which policies hold, after RolloutPolicies were listed with an error: the API does
// not have them, or does not show them. It is empty for any other error.
func Hidden(err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return "this cluster does not have RolloutPolicies, so every DaemonSet changes as in Kubernetes; everynode " +
			"controller --print-crds has their definitions"
	case apierrors.IsForbidden(err):
		return "RolloutPolicies may not be read, so this is what holds if there are none: " + err.Error()
	}
	return ""
}

// Unread is the error of a kind without which nothing can be said.
func Unread(kind string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf(
			"list %s: %w; the role everynode:reader of examples/reader-rbac.yaml has all rights that are needed to look",
			kind, err,
		)
	}
	return fmt.Errorf("list %s: %w", kind, err)
}
