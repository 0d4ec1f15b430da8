package podtemplate

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func template(image string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "logs"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

// The hash is part of the names of objects that outlive the process, so it must
// never change.
func TestHashIsStable(t *testing.T) {
	one, two := int32(0), int32(1)
	none := Hash(template("demo:v1"), nil)
	if none != Hash(template("demo:v1"), nil) {
		t.Error("a copy has another hash")
	}
	if a, b := Hash(template("demo:v1"), &one), Hash(template("demo:v1"), &two); a == none || b == none || a == b {
		t.Errorf("hashes without, with 0 and with 1 collisions are %s, %s, %s: not all different", none, a, b)
	}
	if strings.ContainsAny(none, "aeiou013") {
		t.Errorf("hash %s has characters outside the safe alphabet", none)
	}
}

func TestSame(t *testing.T) {
	hashed := template("demo:v1")
	hashed.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "abc"
	labelled := template("demo:v1")
	labelled.Labels["app"] = "other"
	for name, c := range map[string]struct {
		other *corev1.PodTemplateSpec
		want  bool
	}{
		"a copy":        {template("demo:v1"), true},
		"with the hash": {hashed, true},
		"another image": {template("demo:v2"), false},
		"another label": {labelled, false},
	} {
		if got := Same(template("demo:v1"), c.other); got != c.want {
			t.Errorf("%s: the same %v, want %v", name, got, c.want)
		}
	}
	if hashed.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != "abc" {
		t.Error("comparing took the hash away")
	}
}

func TestPod(t *testing.T) {
	from := template("demo:v1")
	p := Pod(from, "ns", NamePrefix("logs"), metav1.OwnerReference{Name: "logs", UID: "1"})
	if p.Namespace != "ns" || p.GenerateName != "logs-" || p.Labels["app"] != "logs" || p.Spec.Containers[0].Image != "demo:v1" || p.OwnerReferences[0].UID != "1" {
		t.Errorf("the pod is %+v", p)
	}
	p.Labels["app"], p.Spec.Containers[0].Image = "changed", "changed"
	if from.Labels["app"] != "logs" || from.Spec.Containers[0].Image != "demo:v1" {
		t.Error("the pod shares something with its template")
	}
	if long := strings.Repeat("a", 253); NamePrefix(long) != long {
		t.Error("the prefix of a very long name has no room for its dash")
	}
}
