package stolen

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
)

// What a pod uses is open to its node from the binding on, and closed at once when
// the pod is gone.
func TestWhatAPodUsesOpensAndClosesWithIt(t *testing.T) {
	y := newYard(t)
	ask := func(path string, want int) {
		t.Helper()
		if code, body, err := y.send(t.Context(), y.thieves["node1"], request{method: http.MethodGet, path: path}); err != nil || code != want {
			t.Errorf("%s: %d %v, want %d: %.300s", path, code, err, want, body)
		}
	}
	const secret, account = "/api/v1/namespaces/yard-a/secrets/sec-unbound", "/api/v1/namespaces/yard-a/serviceaccounts/sa-unbound"
	ask(secret, http.StatusForbidden)
	ask(account, http.StatusForbidden)
	bind := &corev1.Binding{ObjectMeta: meta("yard-a", "unbound"), Target: corev1.ObjectReference{Kind: "Node", Name: "yard-1"}}
	if err := y.admin.CoreV1().Pods("yard-a").Bind(t.Context(), bind, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ask(secret, http.StatusOK)
	ask(account, http.StatusOK)
	if err := y.admin.CoreV1().Pods("yard-a").Delete(t.Context(), "unbound", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	// The watch cache is told within moments, and nothing keeps what it once said.
	eventually(t, "what the pod used is closed", func() error {
		return y.refused(t, secret)
	})
	eventually(t, "the pod's account is closed", func() error { return y.refused(t, account) })
	ask("/api/v1/namespaces/yard-a/pods/unbound", http.StatusForbidden)
}

// refused is nil once node 1 may not read what is at the path.
func (y *yard) refused(t *testing.T, path string) error {
	t.Helper()
	code, _, err := y.send(t.Context(), y.thieves["node1"], request{method: http.MethodGet, path: path})
	if err == nil && code != http.StatusForbidden {
		err = fmt.Errorf("%s: %d", path, code)
	}
	return err
}

// Who may only read gets no command into a container, by whatever method.
func TestReadingIsNoCommand(t *testing.T) {
	y := newYard(t)
	for _, who := range []string{"reader", "user"} {
		eventually(t, "the roles are known", func() error {
			code, _, err := y.send(t.Context(), y.thieves[who], request{method: http.MethodGet, path: "/api/v1/namespaces/yard-a/pods/own"})
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%s: %d", who, code)
			}
			return err
		})
	}
	upgrades := map[string]http.Header{"no upgrade": {}, "WebSocket": upgradeWebSocket, "SPDY": upgradeSPDY}
	for _, sub := range []string{"exec?command=id&stdout=1", "attach?stdout=1", "portforward?ports=80"} {
		name, _, _ := strings.Cut(sub, "?")
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for how, header := range upgrades {
				r := request{method: method, path: "/api/v1/namespaces/yard-a/pods/own/" + sub, header: header}
				code, body, err := y.send(t.Context(), y.thieves["reader"], r)
				want := `User "yard-reader" cannot create resource "pods/` + name + `" in API group "" in the namespace "yard-a"`
				if err != nil || code != http.StatusForbidden || !strings.Contains(messageOf(body), want) {
					t.Errorf("%s %s, %s: %d %v %.300s, want %q", method, sub, how, code, err, body, want)
				}
				// There is no agent to answer, but that is another complaint.
				if code, body, err = y.send(t.Context(), y.thieves["user"], r); err != nil || code == http.StatusForbidden {
					t.Errorf("%s %s, %s, by who may: %d %v %.300s", method, sub, how, code, err, body)
				}
			}
		}
	}
}

// A node writes the status of its own pods, and an administrator all of them. Neither has a pod show another Secret, by
// any way in: else its node might read that.
func TestNobodyPointsAPodAtAnotherCopy(t *testing.T) {
	y := newYard(t)
	const secret = "/api/v1/namespaces/yard-a/secrets/sec-other"
	pointing := content.Pointing{Content: strings.Repeat("a", 24), At: time.Now(), Volumes: []content.Pointed{
		{Ref: content.Ref{Kind: content.Secret, Name: "sec-vol"}, Copy: "sec-other"}}}
	text, err := pointing.Text()
	if err != nil {
		t.Fatal(err)
	}
	body := asBytes(t, object{"metadata": object{"annotations": object{content.LiveName: text}}})
	for who, path := range map[string]string{
		"the node":                  "/api/v1/namespaces/yard-a/pods/own/status",
		"the node, not the status":  "/api/v1/namespaces/yard-a/pods/own",
		"the node, of another node": "/api/v1/namespaces/yard-a/pods/other/status",
	} {
		code, got, err := y.send(t.Context(), y.thieves["node1"], request{method: http.MethodPatch, path: path,
			header: contentType(asMerge), body: body})
		if err != nil || code != http.StatusForbidden {
			t.Errorf("%s: %d %v: %.300s", who, code, err, got)
		}
	}
	for _, sub := range []string{"", "status", "resize", "ephemeralcontainers"} {
		of := []string{sub}
		if sub == "" {
			of = nil
		}
		_, err := y.admin.CoreV1().Pods("yard-a").Patch(t.Context(), "own", types.MergePatchType, body, metav1.PatchOptions{}, of...)
		pod, failed := y.admin.CoreV1().Pods("yard-a").Get(t.Context(), "own", metav1.GetOptions{})
		if failed != nil {
			t.Fatal(failed)
		}
		if _, has := pod.Annotations[content.LiveName]; has || sub == "" && !apierrors.IsForbidden(err) {
			t.Errorf("pods/%s: %v; the annotations are %v", sub, err, pod.Annotations)
		}
	}
	if err := y.refused(t, secret); err != nil {
		t.Error(err)
	}
}
