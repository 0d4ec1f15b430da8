package defaulttolerationseconds

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

func TestAdmit(t *testing.T) {
	const notReady, unreachable = corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable
	both := notReady + "=300 " + unreachable + "=300"
	cases := []struct {
		name string
		has  []corev1.Toleration
		want string
	}{
		{"ordinary pod", nil, both},
		{"daemon pod", []corev1.Toleration{{Key: notReady, Operator: "Exists", Effect: "NoExecute"}, {Key: unreachable, Operator: "Exists", Effect: "NoExecute"}}, notReady + "=ever " + unreachable + "=ever"},
		{"one of them", []corev1.Toleration{{Key: unreachable, Effect: "NoExecute", TolerationSeconds: new(int64(5))}}, unreachable + "=5 " + notReady + "=300"},
		{"only against scheduling", []corev1.Toleration{{Key: notReady, Effect: "NoSchedule"}}, notReady + "=ever " + both},
		{"everything", []corev1.Toleration{{Operator: "Exists"}}, "=ever"},
		{"any effect", []corev1.Toleration{{Key: notReady}, {Key: unreachable}}, notReady + "=ever " + unreachable + "=ever"},
	}
	for _, c := range cases {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: c.has}}
		for range 2 { // a second time changes nothing
			if err := New(300, 300).Admit(t.Context(), attributes(pod, "pods", ""), nil); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, toleration := range pod.Spec.Tolerations {
			seconds := "ever"
			if toleration.TolerationSeconds != nil {
				seconds = fmt.Sprint(*toleration.TolerationSeconds)
			}
			got = append(got, toleration.Key+"="+seconds)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %s, want %s", c.name, strings.Join(got, " "), c.want)
		}
	}
	status := &corev1.Pod{}
	if err := New(300, 300).Admit(t.Context(), attributes(status, "pods", "status"), nil); err != nil || len(status.Spec.Tolerations) > 0 {
		t.Errorf("a status write was changed: %v %v", status.Spec.Tolerations, err)
	}
}

func attributes(pod *corev1.Pod, resource, subresource string) admission.Attributes {
	return admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p",
		corev1.SchemeGroupVersion.WithResource(resource), subresource, admission.Create, nil, false, nil)
}
