package objects

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestPullSecretsOfAnAccount(t *testing.T) {
	client := fake.NewClientset(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "robot"},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "x"}}})
	o := Reader{Client: client}
	if got, err := o.PullSecrets(t.Context(), "ns", "robot"); err != nil || len(got) != 1 || got[0].Name != "x" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := o.PullSecrets(t.Context(), "ns", "gone"); err == nil || !strings.Contains(err.Error(), "account gone") {
		t.Errorf("of an account that is not there: %v", err)
	}
}
