package podtemplate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTemplate(t *testing.T) {
	kind := Definition()
	good := func() *corev1.PodTemplate {
		out := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "t"}}
		out.Template.Labels = map[string]string{"app": "a"}
		out.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}, {Name: "d", Image: "j:v1"}}
		kind.Default(out)
		return out
	}
	whole := good()
	if s := whole.Template.Spec; s.RestartPolicy != corev1.RestartPolicyAlways || s.Containers[0].ImagePullPolicy != corev1.PullAlways || s.Containers[1].ImagePullPolicy != corev1.PullIfNotPresent {
		t.Errorf("the defaults are %v", s)
	}
	if errs := Validate(whole); len(errs) > 0 {
		t.Errorf("a good one: %v", errs)
	}
	bad := good()
	bad.Template.Spec.Containers[0].Image = ""
	if got := fmt.Sprint(Validate(bad).ToAggregate()); got != "template.spec.containers[0].image: Required value" {
		t.Errorf("without an image: %s", got)
	}
	out, err := printer.ConvertToTable(t.Context(), whole, nil)
	if err != nil || fmt.Sprint(out.Rows[0].Cells) != "[t c,d i,j:v1 app=a]" {
		t.Errorf("%v, %v", out, err)
	}
}
