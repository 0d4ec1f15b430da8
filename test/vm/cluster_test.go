package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// cluster is a server outside of the machine.
type cluster struct {
	everynode, dir string
	client         kubernetes.Interface
}

// newCluster starts a server, until the test ends.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{everynode: os.Getenv("EVERYNODE_BINARY"), dir: t.TempDir()}
	log, err := os.Create(filepath.Join(c.dir, "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	server := exec.Command(c.everynode, "server", "--listen", here+":6443", "--data-dir", c.dir)
	server.Stdout, server.Stderr = log, log
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			t.Logf("the end of the server's log:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	})
	await(t, "the server is ready", func(ctx context.Context) error {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.dir, "kubeconfig"))
		if err != nil {
			return err
		}
		config.QPS = -1
		c.client, err = kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		return c.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	return c
}

// try runs everynode as the administrator, with input for what reads it.
func (c *cluster) try(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.everynode, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(c.dir, "kubeconfig"), "HOME="+c.dir)
	cmd.Stdin = strings.NewReader(input)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("everynode %s: %w: %s%s", strings.Join(args, " "), err, out, &said)
	}
	return strings.TrimSpace(string(out)), nil
}

func (c *cluster) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.try(t.Context(), "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c *cluster) apply(t *testing.T, manifest string) {
	t.Helper()
	// A new namespace has its service account a little later.
	await(t, "a manifest is taken", func(ctx context.Context) error {
		_, err := c.try(ctx, manifest, "kubectl", "apply", "-f", "-")
		return err
	})
}

// exec runs a program in a pod, when it can be reached.
func (c *cluster) exec(t *testing.T, words ...string) (out string) {
	t.Helper()
	await(t, "a command in a pod", func(ctx context.Context) (err error) {
		out, err = c.try(ctx, "", append([]string{"kubectl", "exec"}, words...)...)
		return err
	})
	return out
}

// node waits until the machine's node is as it should be.
func (c *cluster) node(t *testing.T, what string, is func(*corev1.Node) error) {
	t.Helper()
	await(t, what, func(ctx context.Context) error {
		node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return is(node)
	})
}

// ready wants the node's word of how it is.
func ready(want corev1.ConditionStatus) func(*corev1.Node) error {
	return func(node *corev1.Node) error {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == want {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", node.Status.Conditions)
	}
}

// readyIn wants the node to be ready in a certain run of its kernel.
func readyIn(boot string) func(*corev1.Node) error {
	return func(node *corev1.Node) error {
		if node.Status.NodeInfo.BootID != boot {
			return fmt.Errorf("its boot ID is %s, want %s", node.Status.NodeInfo.BootID, boot)
		}
		return ready(corev1.ConditionTrue)(node)
	}
}

// life is one pod's, as far as a restart shows in it.
type life struct {
	uid, name, container string
	restarts             int32
}

// lives waits until all pods of the default namespace are ready, as many as wanted, and returns how they live.
func (c *cluster) lives(t *testing.T, want int) (out []life) {
	t.Helper()
	await(t, fmt.Sprintf("%d pods are ready", want), func(ctx context.Context) error {
		out = nil
		pods, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if !podfacts.IsReady(pod) {
				return fmt.Errorf("%s is not ready: %+v", pod.Name, pod.Status)
			}
			status := pod.Status.ContainerStatuses[0]
			out = append(out, life{string(pod.UID), pod.Name, status.ContainerID, status.RestartCount})
		}
		if len(out) != want {
			return fmt.Errorf("there are %d", len(out))
		}
		return nil
	})
	slices.SortFunc(out, func(a, b life) int { return strings.Compare(a.name, b.name) })
	return out
}

// restarted waits until the same pods run with containers that were started once more.
func (c *cluster) restarted(t *testing.T, before []life) []life {
	t.Helper()
	var now []life
	await(t, "the pods' containers were started once more", func(context.Context) error {
		now = c.lives(t, len(before))
		for i, is := range now {
			was := before[i]
			if is.uid != was.uid {
				t.Fatalf("pod %s was made again: %+v, before %+v", is.name, is, was)
			}
			if is.container == was.container {
				return errors.New("it still has the container of before")
			}
			if is.restarts != was.restarts+1 {
				t.Fatalf("pod %s was restarted %d times, not once", is.name, is.restarts-was.restarts)
			}
		}
		return nil
	})
	return now
}
