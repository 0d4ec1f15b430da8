package loops

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testenv"
)

const rootCAName = "kube-root-ca.crt"

// rootCAIsPublished: every namespace has the certificate, whatever is done to it.
func rootCAIsPublished(t *testing.T, e *testenv.Env) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rootca"}}
	if _, err := e.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect := func(what, namespace string, notUID string) *corev1.ConfigMap {
		t.Helper()
		var found *corev1.ConfigMap
		e.Eventually(what, func(ctx context.Context) error {
			m, err := e.Client.CoreV1().ConfigMaps(namespace).Get(ctx, rootCAName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if len(m.Data) != 1 || !strings.Contains(m.Data["ca.crt"], "BEGIN CERTIFICATE") || string(m.UID) == notUID {
				return fmt.Errorf("it holds %v", m.Data)
			}
			found = m
			return nil
		})
		return found
	}
	expect("an old namespace has it", "kube-system", "")
	m := expect("a new namespace has it", "rootca", "").DeepCopy()

	m.Data = map[string]string{"ca.crt": "mine", "other": "x"}
	if _, err := e.Client.CoreV1().ConfigMaps("rootca").Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("it is mended after an edit", "rootca", "")

	if err := e.Client.CoreV1().ConfigMaps("rootca").Delete(t.Context(), rootCAName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("it is made again", "rootca", string(m.UID))
}
