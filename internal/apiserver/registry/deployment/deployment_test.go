package deployment

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func web(edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web:v1"}}}},
	}}
	for _, edit := range edits {
		edit(d)
	}
	SetDefaults(d)
	return d
}

func TestDefaults(t *testing.T) {
	s := web().Spec
	got := fmt.Sprintln(*s.Replicas, s.Strategy.Type, s.Strategy.RollingUpdate.MaxSurge, s.Strategy.RollingUpdate.MaxUnavailable, *s.RevisionHistoryLimit, *s.ProgressDeadlineSeconds)
	if want := "1 RollingUpdate 25% 25% 10 600\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*appsv1.Deployment)
		want string
	}{
		"valid": {func(*appsv1.Deployment) {}, "[]"},
		"recreate, rolling": {func(d *appsv1.Deployment) {
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{}}
		}, "[spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate']"},
		"neither": {func(d *appsv1.Deployment) {
			zero := ptr.To(intstr.FromInt32(0))
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: zero, MaxUnavailable: zero}
		}, "[spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0]"},
		"deadline too soon": {func(d *appsv1.Deployment) {
			d.Spec.MinReadySeconds, d.Spec.ProgressDeadlineSeconds = 5, ptr.To[int32](5)
		},
			"[spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds]"},
		"run once": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever },
			`[spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"]`},
	} {
		if got := fmt.Sprint(Validate(web(c.edit))); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestStatusAddsUp(t *testing.T) {
	s := &appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, UpdatedReplicas: 2, AvailableReplicas: 2}
	var fields []string
	for _, err := range ValidateStatusUpdate(s, &appsv1.DeploymentStatus{CollisionCount: ptr.To[int32](1)}) {
		fields = append(fields, err.Field)
	}
	if got, want := fmt.Sprint(fields), "[status.updatedReplicas status.availableReplicas status.availableReplicas status.collisionCount]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRow(t *testing.T) {
	d := web()
	d.Status = appsv1.DeploymentStatus{ReadyReplicas: 1, UpdatedReplicas: 2, AvailableReplicas: 3}
	table := fmt.Sprint(row(d, time.Now()))
	if want := "[web 1/1 2 3 <unknown> main web:v1 app=web]"; table != want {
		t.Errorf("got %s, want %s", table, want)
	}
}
