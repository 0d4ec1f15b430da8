package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/nodestatus"
	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/node/identity"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
)

// runAgent joins a machine and has it report its Node, as an agent does, until the test ends.
func runAgent(t *testing.T, env *testenv.Env, node string) {
	t.Helper()
	secret, token, err := authn.NewBootstrapToken(time.Now(), time.Hour, "test")
	must(t, err)
	_, err = env.Client.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	must(t, err)
	token.CAHash, err = pki.ReadCAHash(filepath.Join(env.DataDir(), "pki"))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	dir := t.TempDir()
	id, err := join.Join(ctx, join.Config{Server: env.Config.Host, Token: token.Text(), NodeName: node, NodeIPs: func() []net.IP { return []net.IP{net.IPv4(127, 0, 0, 1)} }, DataDir: dir, TrustInterval: time.Second})
	must(t, err)
	config := id.RESTConfig()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	reporter, err := nodestatus.New(nodestatus.Config{
		NodeName: node, NodeIPs: func() []net.IP { return []net.IP{net.IPv4(127, 0, 0, 1)} }, Client: client, KubeletVersion: "v1.37.0", KubeletPort: 1, DataDir: dir, Restored: id.Restored, Making: id.Making, Settled: id.Settle,
		Runtime: func(context.Context) (nodestatus.Runtime, error) {
			return nodestatus.Runtime{Name: "none", Version: "1", Ready: nodestatus.Condition{OK: true}, NetworkReady: nodestatus.Condition{OK: true}}, nil
		},
	})
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { _ = id.Run(ctx) })
	wg.Go(func() { _ = reporter.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// A node that joined after the backup comes back by itself, shows its key, and the operator learns
// of it: nobody but them knows whether it was revoked since.
func TestNodeComesBackAfterARestore(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t)
	runAgent(t, e, "before")
	nodesReady(t, e, 1)
	content, status := backUp(t, e.Config)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, content)
	}
	runAgent(t, e, "after")
	runAgent(t, e, "revoked")
	nodesReady(t, e, 3)
	_, err := e.Client.CoreV1().Secrets("kube-system").Create(t.Context(), identity.Revocation{Node: "revoked", Before: time.Now()}.Secret(), metav1.CreateOptions{})
	must(t, err)
	address := strings.TrimPrefix(e.Config.Host, "https://")
	e.Stop()

	dir := filepath.Join(t.TempDir(), "restored")
	must(t, restoreTo(t, content, dir))
	r := testenv.Start(t, func(o *config.Options) { o.DataDir, o.Listen = dir, []string{address} })
	nodesReady(t, r, 3)
	for _, node := range []string{"after", "revoked"} {
		r.Eventually(node+" has shown its key, and it is said that it came back", func(ctx context.Context) error {
			if _, err := r.Client.CoreV1().Secrets("kube-system").Get(ctx, identity.RecordName(node), metav1.GetOptions{}); err != nil {
				return err
			}
			return cameBack(ctx, r.Client, node)
		})
	}
	if err := cameBack(t.Context(), r.Client, "before"); !errors.Is(err, errNotSaid) {
		t.Errorf("of a node that the backup knows: %v", err)
	}
}

var errNotSaid = errors.New("it is not said that it came back")

func cameBack(ctx context.Context, client kubernetes.Interface, node string) error {
	events, err := client.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "reason=CameBackAfterRestore,involvedObject.name=" + node})
	if err != nil {
		return err
	}
	if len(events.Items) == 0 {
		return errNotSaid
	}
	if event := events.Items[0]; event.Type != corev1.EventTypeWarning || !strings.Contains(event.Message, "everynode node revoke "+node) {
		return fmt.Errorf("the event says %s: %s", event.Type, event.Message)
	}
	return nil
}
