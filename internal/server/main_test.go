package server_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/server"
	"github.com/everynode/everynode/internal/server/config"
)

// serveVariable has this program be a server of the folder that it names, and no test:
// a server that can be killed as the kernel kills.
const serveVariable = "EVERYNODE_TEST_SERVE"

func TestMain(m *testing.M) {
	if member := os.Getenv(memberVariable); member != "" {
		fmt.Fprintln(os.Stderr, runMember(member))
		os.Exit(1)
	}
	if one := os.Getenv(oneOfVariable); one != "" {
		fmt.Fprintln(os.Stderr, runOneOf(one))
		os.Exit(1)
	}
	if to := os.Getenv(restoreVariable); to != "" {
		if err := restoreStdin(to); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir := os.Getenv(serveVariable)
	if dir == "" {
		// They mostly wait: for elections, for keys that are taken over, for the end of a server.
		flag.Parse()
		if flag.Lookup("test.parallel").Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
			_ = flag.Set("test.parallel", "4")
		}
		os.Exit(m.Run())
	}
	o := config.Defaults()
	o.DataDir, o.Listen = dir, []string{"127.0.0.1:0"}
	s, err := server.New(o)
	if err == nil {
		err = s.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// serveElsewhere runs a server in a process of its own.
func serveElsewhere(t *testing.T, dir string) (client kubernetes.Interface, kill func()) {
	t.Helper()
	client, process := serveProcess(t, dir)
	return client, func() {
		_ = process.Kill()
		_, _ = process.Wait()
	}
}

func serveProcess(t *testing.T, dir string) (kubernetes.Interface, *os.Process) {
	t.Helper()
	process := exec.Command(os.Args[0], "-test.run=^$") //nolint:gosec // It is this program.
	process.Env, process.Stderr = append(os.Environ(), serveVariable+"="+dir), os.Stderr
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var client kubernetes.Interface
		config, err := clientcmd.BuildConfigFromFlags("", dir+"/kubeconfig")
		if err == nil {
			if client, err = kubernetes.NewForConfig(config); err == nil {
				_, err = client.Discovery().ServerVersion()
			}
		}
		if err == nil {
			return client, process.Process
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not answer: %v", err)
		}
	}
}
