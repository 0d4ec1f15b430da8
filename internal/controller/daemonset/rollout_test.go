package daemonset

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// quicker is an API in which somebody else always was.
type quicker struct{ RolloutWriter }

func (quicker) GetRollout(context.Context, string, string) (*v1alpha1.DaemonSetRollout, error) {
	return &v1alpha1.DaemonSetRollout{}, nil
}

func (quicker) UpdateRolloutStatus(_ context.Context, r *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error) {
	return nil, apierrors.NewConflict(resource[kindRollout], r.Name, errors.New("the object has been modified"))
}

// The log says why a rollout's status is not taken: the DaemonSet's condition sends people there.
func TestLogSaysWhyAStatusIsNotTaken(t *testing.T) {
	e, _ := newExecutor(t, nil)
	e.rollouts = quicker{}
	var said strings.Builder
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, line string) { said.WriteString(line) }, funcr.Options{}))
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs"}}
	if _, out := e.updateRollout(ctx, ds, &v1alpha1.DaemonSetRollout{}, &action.UpdateRollout{}); out != action.Failed {
		t.Errorf("the outcome is %s", out)
	}
	if !strings.Contains(said.String(), "the object has been modified") {
		t.Errorf("it says %s", said.String())
	}
}
