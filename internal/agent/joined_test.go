package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/testenv"
)

// TestJoinedNode runs a whole agent against a whole control plane: it joins, its node becomes ready, and a DaemonSet's
// pod runs on it, with a secret in its environment and a config map in a file, reports ready, and ends with the
// DaemonSet. That somebody else has the port at which it tells of its health holds up nothing.
func TestJoinedNode(t *testing.T) {
	m := newMachine(t)
	env := testenv.Start(t)
	taken := strings.TrimPrefix(env.Config.Host, "https://")
	startAgent(t, m, env, joinToken(t, env), func(c *config.Config) { c.HealthAddress = taken })

	env.Eventually("the node is ready", func(ctx context.Context) error {
		node, err := env.Client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", node.Status.Conditions)
	})
	ctx := t.Context()
	client := env.Client
	_, err := client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		StringData: map[string]string{"WORD": "swordfish"}}, metav1.CreateOptions{})
	podstest.Must(t, err)
	_, err = client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Data: map[string]string{"file": "from a config map"}}, metav1.CreateOptions{})
	podstest.Must(t, err)
	_, err = client.AppsV1().DaemonSets("default").Create(ctx, daemonSet(), metav1.CreateOptions{})
	podstest.Must(t, err)

	pod := readyDaemon(env)
	env.Eventually("the DaemonSet counts it", func(ctx context.Context) error {
		ds, err := client.AppsV1().DaemonSets("default").Get(ctx, "d", metav1.GetOptions{})
		if err == nil && ds.Status.NumberAvailable != 1 {
			err = fmt.Errorf("status %+v", ds.Status)
		}
		return err
	})
	dir := m.dir + "/log/pods/default_" + pod.Name + "_" + string(pod.UID)
	awaitFile(t, dir+"/word/0.log", "swordfish")
	awaitFile(t, dir+"/read/0.log", "from a config map")
	awaitFile(t, dir+"/read/0.log", "default") // the namespace of its service account
	undoMeddling(t, env, pod)
	env.Eventually("events tell of it", func(ctx context.Context) error {
		list, err := client.CoreV1().Events("default").List(ctx,
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name})
		if err != nil {
			return err
		}
		seen := map[string]string{}
		for _, e := range list.Items {
			seen[e.Reason] = e.Source.Component + "/" + e.Source.Host
		}
		for _, reason := range []string{"Pulled", "Created", "Started"} {
			if seen[reason] != "kubelet/n1" {
				return fmt.Errorf("events %v", seen)
			}
		}
		return nil
	})
	env.Eventually("its log can be read through the API", func(ctx context.Context) error {
		stream, err := client.CoreV1().Pods("default").GetLogs(pod.Name, &corev1.PodLogOptions{Container: "word"}).Stream(ctx)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(stream)
		if err == nil && string(text) != "swordfish\n" {
			err = fmt.Errorf("the log is %q", text)
		}
		return errors.Join(err, stream.Close())
	})
	podstest.Must(t, client.AppsV1().DaemonSets("default").Delete(ctx, "d", metav1.DeleteOptions{}))
	env.Eventually("the pod is gone", func(ctx context.Context) error {
		_, err := client.CoreV1().Pods("default").Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %w", cmp.Or(err, errors.New("no error")))
	})
	awaitNothing(t, m, pod.UID)
}

// undoMeddling makes the pod unready, as a controller does that takes the node for lost, and waits until the node has
// its say.
func undoMeddling(t *testing.T, env *testenv.Env, pod *corev1.Pod) {
	t.Helper()
	pods := env.Client.CoreV1().Pods(pod.Namespace)
	patch := `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"NodeNotReady"}]}}`
	_, err := pods.Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{},
		"status")
	podstest.Must(t, err)
	env.Eventually("the pod is ready again", func(ctx context.Context) error {
		got, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && !podstest.IsReady(got) {
			err = fmt.Errorf("conditions %+v", got.Status.Conditions)
		}
		return err
	})
}

// readyDaemon waits until the DaemonSet d has its one pod, and the pod is ready.
func readyDaemon(env *testenv.Env) (pod *corev1.Pod) {
	env.Eventually("the DaemonSet's pod is ready", func(ctx context.Context) error {
		list, err := env.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=d"})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("%d pods", len(list.Items))
		}
		if pod = &list.Items[0]; !podstest.IsReady(pod) {
			return fmt.Errorf("status %+v", pod.Status)
		}
		return nil
	})
	return pod
}

func daemonSet() *appsv1.DaemonSet {
	labels := map[string]string{"app": "d"}
	file := []corev1.VolumeMount{{Name: "c", MountPath: "/etc/c", ReadOnly: true}}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(2)),
					InitContainers: []corev1.Container{{Name: "read", Image: podstest.BoxImage, Args: []string{"cat", "/etc/c/file",
						"/var/run/secrets/kubernetes.io/serviceaccount/namespace"}, VolumeMounts: file}},
					Containers: []corev1.Container{
						{Name: "word", Image: podstest.BoxImage, Args: []string{"env", "WORD"}, EnvFrom: []corev1.EnvFromSource{{
							SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}},
							ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
								Exec: &corev1.ExecAction{Command: []string{"/box", "cat", "/etc/c/file"}}}}, VolumeMounts: file},
					},
					Volumes: []corev1.Volume{{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}}},
				},
			},
		},
	}
}

// joinToken makes a token for one node.
func joinToken(t *testing.T, env *testenv.Env) string {
	t.Helper()
	secret, token, err := authn.NewBootstrapToken(time.Now(), time.Hour, "test")
	podstest.Must(t, err)
	_, err = env.Client.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	podstest.Must(t, err)
	block, _ := pem.Decode(env.Config.CAData)
	hash := sha256.Sum256(block.Bytes)
	token.CAHash = hex.EncodeToString(hash[:])
	return token.Text()
}

// startAgent runs an agent until the test ends, or until stop is called, which waits for its end.
func startAgent(t *testing.T, m *machine, env *testenv.Env, token string,
	options ...func(*config.Config)) (stop func()) {
	t.Helper()
	return startAgentBy(t, m, env, token, clock.RealClock{}, options...)
}

// startAgentBy runs an agent by a clock.
func startAgentBy(t *testing.T, m *machine, env *testenv.Env, token string, by clock.WithTicker,
	options ...func(*config.Config)) (stop func()) {
	t.Helper()
	cfg := config.Config{
		Node: config.Node{Server: env.Config.Host, Token: token, NodeName: "n1",
			NodeIPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Port: freePort(t), Version: "v1.0.0-test"},
		Folders:  config.Folders{DataDir: m.dir + "/agent", LogDir: m.dir + "/log", KubeletDir: m.dir + "/kubelet", MemoryDir: m.dir + "/run"},
		Runtime:  config.Runtime{RuntimeEndpoint: m.endpoint, CgroupRoot: m.cgroupRoot},
		Eviction: config.Eviction{EvictionHard: "none"},
		Images:   config.Images{ImageGCHigh: 100},
		Network:  config.Network{ForeignNetwork: true},
		Names:    config.Names{ForeignDNS: true},
		Services: config.Services{ForeignServices: true},
	}
	for _, option := range options {
		option(&cfg)
	}
	a, err := New(cfg)
	podstest.Must(t, err)
	a.clk = by
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !strings.Contains(err.Error(), "context canceled") {
			t.Errorf("the agent ended with: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func freePort(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	podstest.Must(t, err)
	defer func() { _ = l.Close() }()
	return int32(l.Addr().(*net.TCPAddr).Port)
}
