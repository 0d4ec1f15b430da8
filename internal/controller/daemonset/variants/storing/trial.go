package storing

import (
	"context"
	"errors"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// Trier has the API try to make a pod: it says what it would, and makes none. Errors are those of the API.
type Trier interface {
	TryPod(ctx context.Context, p *corev1.Pod) error
}

// Try has the API try a pod. Blames reports whether an error is for what the pod's template says: what else is said
// against it now, such as a quota that is used up, may be otherwise when it is made.
func Try(
	ctx context.Context, to Trier, t *variants.Trial, p *corev1.Pod, blames func(error) bool,
) variants.Verdict {
	err := to.TryPod(ctx, p)
	v := variants.Verdict{Trial: t}
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "does not support dry run"): // of a webhook: nobody can be asked
		klog.FromContext(ctx).V(2).Info("Cannot try a pod", "daemonSet", klog.KObj(t.DaemonSet), "err", err)
	case blames(err):
		v.Refused = err.Error()
	case unsure(err):
		v.Unsure = true
	}
	return v
}

// unsure reports whether the API has not answered, or has not looked at what was asked.
func unsure(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= 500 || status.Status().Code == http.StatusTooManyRequests
}
