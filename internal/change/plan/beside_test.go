package plan

import (
	"bytes"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
)

// takeOver stores the DaemonSet as it is beside another controller.
func takeOver(ds *appsv1.DaemonSet) {
	ds.Annotations = map[string]string{
		admit.UpdateStrategy: `{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1,"maxSurge":0}}`,
	}
	ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
}

// TestPlanBeside: where another controller makes the pods a plan has the same steps, shows nothing of how the DaemonSet
// is stored, and warns of what is otherwise there.
func TestPlanBeside(t *testing.T) {
	image := func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "example.com/agent:2" }
	moved := func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"} }
	hash, err := admit.Moves{To: &edited(&appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{}}, func(ds *appsv1.DaemonSet) {
		moved(ds)
	}).Spec.Template.Spec}.Hash()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		edit  func(*appsv1.DaemonSet)
		world func(w *surveytest.World, ds *appsv1.DaemonSet)
		says  []string
		not   []string
	}{
		"an image": {image, nil, []string{"canary", "zones/a", "containers[agent].image"},
			[]string{"at once, in no steps", "maxSurge", "updateStrategy"}},
		"an image, where the server was not asked": {func(ds *appsv1.DaemonSet) {
			image(ds)
			one := intstr.FromInt32(1)
			ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one}}
		}, nil, []string{"canary", "zones/a"}, []string{"updateStrategy", "when somebody deletes"}},
		"a surge": {func(ds *appsv1.DaemonSet) {
			image(ds)
			ds.Annotations = map[string]string{
				admit.UpdateStrategy: `{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":0,"maxSurge":1}}`,
			}
		}, nil, []string{"maxSurge has no effect"}, []string{"annotations"}},
		"a placement": {moved, nil, []string{"refused until then: 6 nodes would lose the daemon and 0 would get it",
			"everynode rollout approve daemonset/log-agent -n kube-system --placement " + hash}, nil},
		"a placement that is approved": {moved, func(w *surveytest.World, ds *appsv1.DaemonSet) {
			r := w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{DaemonSetGeneration: ds.Generation})
			r.Annotations = map[string]string{v1alpha1.ApprovedPlacement: hash}
		}, []string{"nodes are chosen by the new template at once, in no steps"}, []string{"refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, ds := cluster(t)
			w.Policy("careful", waves)
			takeOver(ds)
			if c.world != nil {
				c.world(w, ds)
			}
			var text bytes.Buffer
			// The command gives what the survey has, which is as its author wrote it.
			forecast(t, w, survey.New(w.Objects).DaemonSet(ds.Namespace, ds.Name), edited(ds, c.edit)).Write(&text)
			got := strings.Join(strings.Fields(text.String()), " ")
			for _, want := range c.says {
				if !strings.Contains(got, want) {
					t.Errorf("it does not say %q:\n%s", want, text.String())
				}
			}
			for _, bad := range append(c.not, "it is not taken over") {
				if strings.Contains(got, bad) {
					t.Errorf("it says %q:\n%s", bad, text.String())
				}
			}
		})
	}
}

// TestPlanANewOneBeside: a new DaemonSet is warned of where any other one is taken over.
func TestPlanANewOneBeside(t *testing.T) {
	for _, beside := range []bool{true, false} {
		w, ds := cluster(t)
		w.Policy("careful", waves)
		if beside {
			takeOver(ds)
		}
		fresh := ds.DeepCopy()
		fresh.ObjectMeta = metav1.ObjectMeta{Namespace: ds.Namespace, Name: "fresh", Labels: ds.Labels}
		fresh.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType}
		all := strings.Join(forecast(t, w, nil, fresh).Warnings, "\n")
		if strings.Contains(all, "to all nodes at once: another DaemonSet controller makes them") != beside {
			t.Errorf("beside another controller (%v) it says\n%s", beside, all)
		}
	}
}

// TestPlanBesideBeforeAnythingShowsIt: the first policy is planned for by what the webhook tells.
func TestPlanBesideBeforeAnythingShowsIt(t *testing.T) {
	for _, beside := range []bool{true, false} {
		w, ds := cluster(t)
		w.Policy("careful", waves)
		w.Objects.Beside = beside
		surging := ds.DeepCopy()
		surging.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt32(0)),
				MaxSurge: ptr.To(intstr.FromInt32(1))}}
		all := strings.Join(forecast(t, w, ds, surging).Warnings, "\n")
		if strings.Contains(all, admit.NoSurge) != beside {
			t.Errorf("beside another controller (%v) it says\n%s", beside, all)
		}
	}
}

// TestPlanAVariantBeside: where another controller makes the pods a variant changes those of DaemonSets that follow a
// policy. Of others it changes none, and the plan says why.
func TestPlanAVariantBeside(t *testing.T) {
	for _, c := range []struct{ beside, policy bool }{{true, true}, {true, false}, {false, false}} {
		w, ds := cluster(t)
		if c.beside {
			takeOver(ds)
		}
		if c.policy {
			w.Policy("careful", waves)
		}
		v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, Name: "big", UID: "v"}}
		v.Spec.Resources = map[string]v1alpha1.VariantResources{
			"agent": {Requests: map[corev1.ResourceName]string{corev1.ResourceCPU: "0.1"}},
		}
		w.Objects.Variants, w.Objects.Varied = []*v1alpha1.DaemonSetVariant{v}, true
		f := forecast(t, w, ds, ds)
		warned := strings.Contains(strings.Join(f.Warnings, "\n"), "no DaemonSetVariant is used for it")
		if unused := c.beside && !c.policy; warned != unused || f.Changes() == unused {
			t.Errorf("%+v: it changes nodes: %v, %q", c, f.Changes(), f.Warnings)
		}
	}
}
