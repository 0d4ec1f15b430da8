package helm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/testenv/eventually"
	"github.com/everynode/everynode/internal/testenv/needs"
)

// cluster is a control plane with simulated nodes, as the program that is built: charts ask
// for its version, which only the Makefile puts in.
type cluster struct {
	t          testing.TB
	kubeconfig string
	Client     kubernetes.Interface
	Config     *restclient.Config
}

// allow is how long a test waits for what must happen; only a failure takes it.
const allow = 2 * time.Minute

// start runs a control plane until the test ends.
func start(t *testing.T, flags ...string) *cluster {
	t.Helper()
	program := needs.Everynode(t, "../..")
	dir := filepath.Join(t.TempDir(), "data")
	var said bytes.Buffer
	cmd := exec.Command(program, append([]string{"server", "--data-dir", dir, "--listen", "127.0.0.1:0", "--simulated-nodes", "3"}, flags...)...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // It may have ended by itself.
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the server ended with %v:\n%s", err, &said)
			}
		case <-time.After(allow):
			_ = cmd.Process.Kill()
			t.Errorf("the server does not end:\n%s", &said)
		}
	})
	c := &cluster{t: t, kubeconfig: filepath.Join(dir, "kubeconfig")}
	c.Eventually("the server is ready", func(ctx context.Context) (err error) {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the server ended with %v:\n%s", err, &said)
		default:
		}
		c.Config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig)
		if err != nil {
			return err
		}
		c.Config.QPS = -1
		c.Client, err = kubernetes.NewForConfig(c.Config)
		if err != nil {
			return err
		}
		return c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	c.Eventually("its nodes are there", func(ctx context.Context) error {
		list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) < 3 {
			err = fmt.Errorf("there are %d nodes", len(list.Items))
		}
		return err
	})
	return c
}

// Eventually waits until check returns nil, and fails the test with its last error if that
// does not happen.
func (c *cluster) Eventually(what string, check func(ctx context.Context) error) {
	c.t.Helper()
	eventually.Nil(c.t, allow, what, check)
}
