package agent

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/testenv"
)

// authority is the certificate that signs now.
func authority(t *testing.T, env *testenv.Env, which string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(env.DataDir(), "pki", which+".crt"))
	podstest.Must(t, err)
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	podstest.Must(t, err)
	return cert
}

// TestAuthoritiesAreReplaced replaces every key of the control plane under a node that runs a pod. The node follows by
// itself, before and after the old ones are trusted no more, and its container runs on.
func TestAuthoritiesAreReplaced(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	env := testenv.Start(t)
	startAgent(t, m, env, joinToken(t, env), func(c *config.Config) { c.TrustInterval = 300 * time.Millisecond })
	before := awaitWord(t, env, "before")

	keys := filepath.Join(env.DataDir(), "pki")
	all := []string{pki.ClusterAuthority, pki.NodeAuthority, pki.ServiceAccounts}
	for _, which := range all {
		podstest.Must(t, pki.Rotate(keys, which, time.Now()))
	}
	client, serving := authority(t, env, pki.ClusterAuthority), authority(t, env, pki.NodeAuthority)
	podstest.Eventually(t, "the node has certificates of the new authorities", func() bool {
		c, s := m.certificate("client.pem"), m.certificate("serving.pem")
		return c != nil && s != nil && c.CheckSignatureFrom(client) == nil && s.CheckSignatureFrom(serving) == nil
	})
	awaitWord(t, env, "during")

	for _, which := range all {
		podstest.Must(t, pki.Finish(keys, which, time.Now()))
	}
	podstest.Eventually(t, "the administrator has a certificate of the new authority, and the old one is out",
		func() bool {
			config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(env.DataDir(), "kubeconfig"))
			if err != nil || len(config.CAData) > 1000 {
				return false
			}
			config.QPS = -1
			env.Client, err = kubernetes.NewForConfig(config)
			return err == nil
		})
	after := awaitWord(t, env, "after")
	again := awaitWord(t, env, "before")
	if again.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID ||
		after.Spec.NodeName != "n1" {
		t.Error("the container that ran before is another one now")
	}
	podstest.Eventually(t, "the node trusts the new authority alone", func() bool {
		data, err := os.ReadFile(filepath.Join(m.dir, "agent", "pki", "ca.crt"))
		podstest.Must(t, err)
		block, rest := pem.Decode(data)
		more, _ := pem.Decode(rest)
		return more == nil && string(block.Bytes) == string(client.Raw)
	})
}
