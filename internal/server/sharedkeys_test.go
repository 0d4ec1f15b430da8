package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/sharedkeys"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/testenv/freeport"
)

// What is replaced on one server, the others take from it, and all work on with both.
func TestKeysAreTakenFromAnotherServer(t *testing.T) {
	t.Parallel()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	first, second := newMachine(t, 11, port), newMachine(t, 12, port)
	both := []*machine{first, second}
	for _, m := range both {
		m.options.API.Run.RequestTimeout = 2 * time.Second // so long writes of before may be under way
	}
	first.start()
	second.join(first, first.token(true))
	same := func(what string) {
		t.Helper()
		first.eventually("both have the keys: "+what, func(context.Context) error {
			a, errA := sharedkeys.Export(first.options.DataDir)
			b, errB := sharedkeys.Export(second.options.DataDir)
			if err := errors.Join(errA, errB); err != nil {
				return err
			}
			if !bytes.Equal(a, b) {
				return errors.New("they have different ones")
			}
			return nil
		})
	}
	// Who uses the kubeconfig that one server has written is known to the other.
	known := func(what string) {
		t.Helper()
		for i, m := range both {
			other := both[1-i]
			m.eventually(fmt.Sprintf("%s: %s's administrator is known to %s", what, m.options.Name, other.options.Name), func(ctx context.Context) error {
				config := m.config()
				config.Host = other.url()
				return ask(ctx, config)
			})
		}
	}
	same("at first")
	keys := func(m *machine) string { return filepath.Join(m.options.DataDir, "pki") }
	for i, which := range []string{pki.ClusterAuthority, pki.NodeAuthority, pki.ServiceAccounts} {
		if err := pki.Rotate(keys(both[i%2]), which, time.Now()); err != nil {
			t.Fatal(err)
		}
		same(which + " is replaced")
		known(which + " is replaced")
	}
	if err := pki.Finish(keys(first), pki.ClusterAuthority, time.Now()); err != nil {
		t.Fatal(err)
	}
	same("the old authority ends")
	if folder.Exists(filepath.Join(keys(second), "ca-previous.crt")) {
		t.Error("the other server trusts the old authority for good")
	}
	known("the old authority has ended")

	// A file that is damaged on one server stays there.
	damaged := filepath.Join(keys(first), "ca.key")
	whole, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := first.now().servers.ClusterKeys().Look(t.Context()); !errors.Is(err, sharedkeys.ErrDamaged) {
		t.Errorf("the key of the authority is cut off, and the other servers are told: %v", err)
	}
	if err := second.now().servers.ClusterKeys().Look(t.Context()); err != nil {
		t.Errorf("the other server has no good keys any more: %v", err)
	}
	if there, err := os.ReadFile(filepath.Join(keys(second), "ca.key")); err != nil || !bytes.Equal(there, whole) {
		t.Errorf("the other server took a key that is cut off (%v)", err)
	}
	if _, err := first.now().take(t.Context()); err == nil {
		t.Error("a backup is made of a key that is cut off")
	}
	if err := os.WriteFile(damaged, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	same("the file is restored")

	// The keys of stored Secrets, with the command that an operator uses. The first server
	// keeps its own on another disk, to which a link leads.
	stored := encryption.File(first.options.DataDir)
	elsewhere := filepath.Join(t.TempDir(), "keys.yaml")
	if err := errors.Join(os.Rename(stored, elsewhere), os.Symlink(elsewhere, stored)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	change := encryption.Change{DataDir: second.options.DataDir, Servers: encryption.AskServers(second.client(), time.Now), Out: &out, Rotate: true, Patience: 3 * time.Minute}
	if err := change.Run(t.Context()); err != nil {
		t.Fatalf("replace the key of stored Secrets: %v\n%s", err, &out)
	}
	same("the key of stored Secrets is replaced")
	if to, err := os.Readlink(stored); err != nil || to != elsewhere {
		t.Errorf("the link to the keys of stored Secrets leads to %q, %v", to, err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "v"}}
	if _, err := second.client().CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := first.client().CoreV1().Secrets("default").Get(t.Context(), "s", metav1.GetOptions{}); err != nil || string(got.Data["k"]) != "v" {
		t.Errorf("the first reads of a Secret %v, %v", got, err)
	}

	// One that was away when they were replaced.
	second.stop()
	if err := pki.Finish(keys(first), pki.ServiceAccounts, time.Now()); err != nil {
		t.Fatal(err)
	}
	second.start()
	same("they were replaced while one was away")
}

func ask(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err == nil {
		_, err = client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	}
	return err
}
