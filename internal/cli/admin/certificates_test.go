package admin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/node/identity"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/testenv"
)

// Nodes that have not followed hold the end of a rotation up; simulated ones do not.
func TestFinishWaitsForNodes(t *testing.T) {
	env := testenv.Start(t, testenv.SimulatedNodes(1))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n1 := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n1.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}}
	n1.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	_, err := env.Client.CoreV1().Nodes().Create(t.Context(), n1, metav1.CreateOptions{})
	must(err)
	var out bytes.Buffer
	for _, which := range []string{pki.NodeAuthority, pki.ClusterAuthority} {
		r := rotation{dataDir: env.DataDir(), which: which, command: "everynode certificates rotate-ca",
			now: time.Now(), out: &out}
		must(r.begin())
		if err := r.finish(t.Context(), false); err == nil ||
			!strings.Contains(err.Error(), "until everybody uses it") {
			t.Errorf("%s at once: %v", which, err)
		}
		r.now = r.now.Add(time.Hour)
		if err := r.finish(t.Context(), false); err == nil ||
			!strings.Contains(err.Error(), "1 nodes have no certificate of the new CA yet (n1)") {
			t.Errorf("%s with a node that has not followed: %v", which, err)
		}
		hash, err := pki.AuthorityHash(filepath.Join(env.DataDir(), "pki"), which)
		must(err)
		secret := &corev1.Secret{}
		identity.Record{Node: "n1", KeyHash: "k", ClientIssuer: hash, ServingIssuer: hash}.Write(secret)
		_ = env.Client.CoreV1().Secrets("kube-system").Delete(t.Context(), secret.Name, metav1.DeleteOptions{})
		_, err = env.Client.CoreV1().Secrets("kube-system").Create(t.Context(), secret, metav1.CreateOptions{})
		must(err)
		must(r.finish(t.Context(), false))
		if _, err := os.Stat(filepath.Join(env.DataDir(), "pki", which+"-previous.crt")); !os.IsNotExist(err) {
			t.Errorf("what %s was is still there: %v", which, err)
		}
	}
	if !strings.Contains(out.String(), "Finished.") {
		t.Errorf("it says %q", out.String())
	}
	// Without a control plane that runs nobody can say who has followed.
	r := rotation{dataDir: env.DataDir(), which: pki.ClusterAuthority, now: time.Now(), out: &out}
	must(r.begin())
	env.Stop()
	r.now = r.now.Add(time.Hour)
	if err := r.finish(t.Context(), false); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("while the control plane is stopped: %v", err)
	}
	must(r.finish(t.Context(), true))
}
