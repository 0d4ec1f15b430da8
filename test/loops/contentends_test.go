package loops

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A namespace that goes in the middle of a change takes all copies with it. One of the same name begins anew.
func namespaceGoes(e *edge) {
	e.middle()
	namespaces := e.Client.CoreV1().Namespaces()
	e.must(namespaces.Delete(e.t.Context(), e.ns, metav1.DeleteOptions{}))
	e.Eventually("the namespace is gone", func(ctx context.Context) error {
		is, err := namespaces.Get(ctx, e.ns, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			err = fmt.Errorf("its conditions are %+v", is.Status.Conditions)
		}
		return err
	})
	e.start()
	e.runs(byHand)
	names, err := e.copies(e.t.Context(), "logs")
	e.must(err)
	if len(names) != 2 {
		e.t.Errorf("the copies are %v, want those of one content", names)
	}
	e.write("new")
	e.phase("logs", v1alpha1.PhaseWaitingForApproval)
	e.reads("logs", map[string]int{"good": edgeNodes - 1, "new": 1})
}

// A quota that has no room for another copy lets nothing begin, and the rollout says so in its words. A pod that is
// lost comes back with what it had, and with room the change goes on.
func quotaHasNoRoom(e *edge) {
	e.runs(byItself)
	before := e.reads("logs", map[string]int{"good": edgeNodes})
	core, ctx := e.Client.CoreV1(), e.t.Context()
	all, err := core.ConfigMaps(e.ns).List(ctx, metav1.ListOptions{})
	e.must(err)
	most := *resource.NewQuantity(int64(len(all.Items)), resource.DecimalSI)
	hard := corev1.ResourceList{corev1.ResourceConfigMaps: most}
	_, err = core.ResourceQuotas(e.ns).Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	e.must(err)
	e.Eventually("the quota counts", func(ctx context.Context) error {
		q, err := core.ResourceQuotas(e.ns).Get(ctx, "few", metav1.GetOptions{})
		if err == nil && len(q.Status.Used) == 0 {
			err = errors.New("it has counted nothing")
		}
		return err
	})
	e.write("new")
	e.says("exceeded quota: few")
	if r := e.phase("logs", v1alpha1.PhasePaused); !strings.Contains(r.Status.Message, "exceeded quota: few") {
		e.t.Errorf("the rollout says %q", r.Status.Message)
	}
	node := e.restart("logs", "good")
	e.same(before, e.reads("logs", map[string]int{"good": edgeNodes}), node)
	e.must(core.ResourceQuotas(e.ns).Delete(ctx, "few", metav1.DeleteOptions{}))
	e.reads("logs", map[string]int{"new": edgeNodes})
	e.phase("logs", v1alpha1.PhaseComplete)
	e.says("")
}
