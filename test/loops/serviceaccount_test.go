package loops

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/testenv"
)

// defaultServiceAccount: every namespace has one, also after somebody deleted it.
func defaultServiceAccount(t *testing.T, e *testenv.Env) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "account"}}
	if _, err := e.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect := func(what string, not types.UID) types.UID {
		t.Helper()
		var uid types.UID
		e.Eventually(what, func(ctx context.Context) error {
			account, err := e.Client.CoreV1().ServiceAccounts("account").Get(ctx, "default", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if account.UID == not {
				return errors.New("it is still the old one")
			}
			uid = account.UID
			return nil
		})
		return uid
	}
	uid := expect("a new namespace has its account", "")
	if err := e.Client.CoreV1().ServiceAccounts("account").Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("it is made again", uid)
}
