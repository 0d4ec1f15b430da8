// Package testenv runs a whole control plane inside a test, with simulated
// nodes where a test wants them. Tests of shells and of whole stories use it;
// nothing else may.
package testenv

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/server"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv/eventually"
)

// patience is how long a test waits for what must happen; it is generous,
// since machines that run tests are busy, and only a failure ever takes it.
const patience = 2 * time.Minute

// Env is a running control plane.
type Env struct {
	t       testing.TB
	options config.Options
	stop    func()

	// Client reaches the API over TLS as the administrator.
	Client kubernetes.Interface
	// Config is the client's configuration.
	Config *restclient.Config
}

// Start runs a control plane until the test ends. change may adjust its options. With -short the test is skipped.
func Start(t testing.TB, change ...func(*config.Options)) *Env {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs a control plane")
	}
	o := config.Defaults()
	o.DataDir, o.Listen, o.NoFsync = filepath.Join(t.TempDir(), "data"), []string{"127.0.0.1:0"}, true
	for _, c := range change {
		c(&o)
	}
	e := &Env{t: t, options: o, stop: func() {}}
	t.Cleanup(func() { e.Stop() })
	e.run()
	return e
}

// SimulatedNodes is an option of Start, which then waits until so many nodes are there.
func SimulatedNodes(n int) func(*config.Options) {
	return func(o *config.Options) { o.SimulatedNodes = n }
}

func (e *Env) run() {
	e.t.Helper()
	s, err := server.New(e.options)
	if err != nil {
		e.t.Fatalf("make the control plane: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	e.stop = func() {
		cancel()
		if err := <-done; err != nil {
			e.t.Errorf("the control plane ended with: %v", err)
		}
		e.stop = func() {}
	}
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		e.t.Fatalf("start the control plane: %v", err)
	case <-time.After(patience):
		e.t.Fatalf("the control plane was not ready after %v", patience)
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		e.t.Fatalf("read the kubeconfig: %v", err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		e.t.Fatalf("make the client: %v", err)
	}
	e.Config, e.Client = config, client
	// Without it no pod can be made in the namespace that tests use.
	e.Eventually("the default service account is there", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	many := time.Duration(e.options.SimulatedNodes) * 10 * time.Millisecond
	eventually.Nil(e.t, patience+many, "the simulated nodes are there", func(ctx context.Context) error {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil && len(nodes.Items) < e.options.SimulatedNodes {
			err = fmt.Errorf("%d of %d", len(nodes.Items), e.options.SimulatedNodes)
		}
		return err
	})
}

// For returns the same control plane for a part of the test, which waits and fails by itself. Only the whole test may
// stop or restart it.
func (e *Env) For(t testing.TB) *Env {
	part := *e
	part.t = t
	return &part
}

// Stop ends the control plane and keeps its data.
func (e *Env) Stop() { e.stop() }

// Restart stops the control plane and starts it again on the same data, with
// its options changed if wanted. The address of the API changes; Client and
// Config are renewed.
func (e *Env) Restart(change ...func(*config.Options)) {
	e.t.Helper()
	e.stop()
	for _, c := range change {
		c(&e.options)
	}
	e.run()
}

// DataDir is where the control plane keeps its data.
func (e *Env) DataDir() string { return e.options.DataDir }

// Eventually waits until check returns nil, and fails the test with its last
// error if that does not happen.
func (e *Env) Eventually(what string, check func(ctx context.Context) error) {
	e.t.Helper()
	eventually.Nil(e.t, patience, what, check)
}
