package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	serverconfig "github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
)

// shortLives makes the server sign certificates that end soon.
func shortLives(o *serverconfig.Options) { o.SigningDuration = 12 * time.Second }

// certificate is the node's certificate in a file, client.pem or serving.pem; nil while there is none.
func (m *machine) certificate(name string) *x509.Certificate {
	path := filepath.Join(m.dir, "agent", "pki", name)
	pair, err := tls.LoadX509KeyPair(path, path)
	if err != nil {
		return nil
	}
	return pair.Leaf
}

// ended reports whether the certificate was of use once and is no more.
func ended(c *x509.Certificate) bool { return c != nil && time.Now().After(c.NotAfter) }

// TestCertificatesAreRenewed lets a node outlive its certificates: its pod runs on, its log can be read, and what is
// new reaches it.
func TestCertificatesAreRenewed(t *testing.T) {
	t.Parallel() // it waits most of the time
	m := newMachine(t)
	env := testenv.Start(t, shortLives)
	startAgent(t, m, env, joinToken(t, env))
	before := awaitWord(t, env, "before")
	podstest.Eventually(t, "the node has both certificates",
		func() bool { return m.certificate("client.pem") != nil && m.certificate("serving.pem") != nil })
	client, serving := m.certificate("client.pem"), m.certificate("serving.pem")

	renewals := map[string]bool{}
	podstest.Eventually(t, "both certificates ended and were renewed more than once", func() bool {
		for _, name := range []string{"client.pem", "serving.pem"} {
			if now := m.certificate(name); now != nil {
				renewals[name+now.SerialNumber.String()] = true
			}
		}
		return ended(client) && ended(serving) && len(renewals) >= 6
	})
	after := awaitWord(t, env, "after")
	again := awaitWord(t, env, "before")
	if again.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		t.Error("the container that ran before is another one now")
	}
	for _, pod := range []*corev1.Pod{again, after} {
		podstest.Must(t, env.Client.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
		awaitNothing(t, m, pod.UID)
	}
}

// awaitWord makes sure that a pod of that name runs and says so, and that this can be read through the API.
func awaitWord(t *testing.T, env *testenv.Env, name string) *corev1.Pod {
	t.Helper()
	pods := env.Client.CoreV1().Pods("default")
	var pod *corev1.Pod
	env.Eventually("pod "+name+" runs and its log can be read", func(ctx context.Context) (err error) {
		pod, err = pods.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			wanted := podstest.Pod(name, "env", "WORD")
			wanted.UID, wanted.Spec.Containers[0].Env = "", []corev1.EnvVar{{Name: "WORD", Value: name}}
			pod, err = pods.Create(ctx, wanted, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
		if !podstest.IsReady(pod) {
			return fmt.Errorf("status %+v", pod.Status)
		}
		stream, err := pods.GetLogs(name, &corev1.PodLogOptions{}).Stream(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }()
		text, err := io.ReadAll(stream)
		if err == nil && string(text) != name+"\n" {
			err = fmt.Errorf("the log is %q", text)
		}
		return err
	})
	return pod
}

// TestCertificateEnded starts a node whose certificate has ended while the server is away: its static pod starts and
// its other pod runs on. Once the server is back, it joins as the same node.
func TestCertificateEnded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	env := testenv.Start(t, shortLives)
	token := joinToken(t, env)
	own := func(c *config.Config) { c.NodeIPs = []net.IP{net.IPv4(127, 0, 0, 2)} } // no other test's ports
	stop := startAgent(t, m, env, token, own)
	before := awaitWord(t, env, "before")
	nodes := env.Client.CoreV1().Nodes()
	node, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{})
	podstest.Must(t, err)
	stop()
	podstest.Eventually(t, "the node's certificate has ended", func() bool { return ended(m.certificate("client.pem")) })

	m.write(t, "agent/manifests/static.yaml", staticManifest)
	address, open := road(t, strings.TrimPrefix(env.Config.Host, "https://"))
	startAgent(t, m, env, token, own, func(c *config.Config) { c.Server = "https://" + address })
	logs := filepath.Join(m.dir, "log/pods/default_static-n1_*/main/0.log")
	podstest.Eventually(t, "the static pod runs", func() bool {
		paths, _ := filepath.Glob(logs)
		if len(paths) != 1 {
			return false
		}
		text, err := os.ReadFile(paths[0])
		return err == nil && strings.Contains(string(text), "without a server")
	})
	if !ended(m.certificate("client.pem")) {
		t.Fatal("the node has a new certificate while the server is away")
	}

	open()
	env.Eventually("the node is back and shows its static pod", func(ctx context.Context) error {
		pod, err := env.Client.CoreV1().Pods("default").Get(ctx, "static-n1", metav1.GetOptions{})
		if err == nil && !podstest.IsReady(pod) {
			err = fmt.Errorf("status %+v", pod.Status)
		}
		return err
	})
	if again, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{}); err != nil || again.UID != node.UID {
		t.Errorf("the node is another one now: %v", err)
	}
	after := awaitWord(t, env, "before")
	if after.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		t.Error("the container that ran before is another one now")
	}
	awaitWord(t, env, "after")
}

const staticManifest = `apiVersion: v1
kind: Pod
metadata: {name: static, namespace: default}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - {name: main, image: "` + podstest.BoxImage + `", args: [env, WORD], env: [{name: WORD, value: without a server}]}
`

// road leads from an address to a server, from the call of open until the test ends. Before that connections end at
// once.
func road(t *testing.T, server string) (address string, open func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	podstest.Must(t, err)
	var isOpen atomic.Bool
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			if !isOpen.Load() {
				_ = from.Close()
				continue
			}
			wg.Go(func() { carry(ctx, from, server) })
		}
	})
	return l.Addr().String(), func() { isOpen.Store(true) }
}

// carry copies both ways until either side, or the test, ends.
func carry(ctx context.Context, from net.Conn, server string) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	closeBoth := func() { _, _ = from.Close(), to.Close() }
	defer context.AfterFunc(ctx, closeBoth)()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		wg.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			closeBoth()
		})
	}
	wg.Wait()
}
