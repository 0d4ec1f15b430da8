package statefulset

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func db(edits ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	labels := map[string]string{"app": "db"}
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "db:v1"}}}}}}
	for _, e := range edits {
		e(s)
	}
	SetDefaults(s)
	return s
}

func claim(name string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
}

func TestDefaultsOfClaims(t *testing.T) {
	c := db(func(s *appsv1.StatefulSet) {
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim("data")}
	}).Spec.VolumeClaimTemplates[0]
	if c.Kind != "PersistentVolumeClaim" || c.APIVersion != "v1" || c.Status.Phase != corev1.ClaimPending || *c.Spec.VolumeMode != corev1.PersistentVolumeFilesystem {
		t.Errorf("the claim is %+v", c)
	}
}

func TestDefaults(t *testing.T) {
	s := db().Spec
	got := strings.TrimSpace(fmt.Sprintln(*s.Replicas, s.PodManagementPolicy, s.UpdateStrategy.Type, *s.UpdateStrategy.RollingUpdate.Partition, s.UpdateStrategy.RollingUpdate.MaxUnavailable,
		*s.RevisionHistoryLimit, s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, s.PersistentVolumeClaimRetentionPolicy.WhenScaled))
	if want := "1 OrderedReady RollingUpdate 0 1 10 Retain Retain"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*appsv1.StatefulSet)
		want string
	}{
		"valid":     {func(*appsv1.StatefulSet) {}, "[]"},
		"on delete": {func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType }, "[]"},
		"claims": {func(s *appsv1.StatefulSet) {
			s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim("data")}
			s.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
			s.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}, "[]"},
		"a claim without a name": {func(s *appsv1.StatefulSet) { s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim("")} },
			"[spec.volumeClaimTemplates[0].metadata.name: Required value]"},
		"a claim's size": {func(s *appsv1.StatefulSet) {
			s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim("data")}
			s.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests = nil
		}, "[spec.volumeClaimTemplates[0].spec.resources[storage]: Required value]"},
		"no such policy": {func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = "X" }, `[spec.podManagementPolicy: Invalid value: "X": must be 'OrderedReady' or 'Parallel']`},
		"none down": {func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.Type, s.Spec.UpdateStrategy.RollingUpdate = "RollingUpdate", &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: ptr.To(intstr.FromInt32(0))}
		}, "[spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0]"},
		"another label":    {func(s *appsv1.StatefulSet) { s.Spec.Template.Labels = nil }, "[spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`]"},
		"run once":         {func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever }, `[spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"]`},
		"before the start": {func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: -1} }, "[spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0]"},
	} {
		if got := fmt.Sprint(Validate(db(c.edit))); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestUpdate(t *testing.T) {
	old := db()
	s := old.DeepCopy()
	s.Spec.Replicas, s.Spec.Template.Spec.Containers[0].Image, s.Spec.MinReadySeconds = ptr.To[int32](3), "db:v2", 5
	if errs := ValidateUpdate(s, old); len(errs) != 0 {
		t.Errorf("what may change is refused: %v", errs)
	}
	s.Spec.ServiceName = "other"
	if got := fmt.Sprint(ValidateUpdate(s, old)); !strings.HasPrefix(got, "[spec: Forbidden: updates to statefulset spec for fields other than 'replicas'") {
		t.Errorf("the refusal is %s", got)
	}
}

func TestStatus(t *testing.T) {
	errs := ValidateStatusUpdate(&appsv1.StatefulSetStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 2}, &appsv1.StatefulSetStatus{CollisionCount: ptr.To[int32](1)})
	want := "[status.availableReplicas: Invalid value: 2: cannot be greater than status.replicas status.availableReplicas: Invalid value: 2: cannot be greater than status.readyReplicas status.collisionCount: Invalid value: 0: cannot be decremented]"
	if got := fmt.Sprint(errs); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
