package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	serverconfig "github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
	"github.com/everynode/everynode/internal/testenv/freeport"
)

// TestCrashWhileTheServerIsAway: a container whose environment comes from the API starts again without it.
func TestCrashWhileTheServerIsAway(t *testing.T) {
	m := newMachine(t)
	env := testenv.Start(t)
	startAgent(t, m, env, joinToken(t, env))
	_, err := env.Client.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Data: map[string]string{"WORD": "swordfish"}}, metav1.CreateOptions{})
	podstest.Must(t, err)
	pod := podstest.Pod("p", "env", "WORD")
	pod.UID = ""
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}}
	env.Eventually("the pod is there", func(ctx context.Context) error {
		pod, err = env.Client.CoreV1().Pods("default").Create(ctx, pod.DeepCopy(), metav1.CreateOptions{})
		return err
	})
	env.Eventually("the pod is ready", func(ctx context.Context) error {
		got, err := env.Client.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
		if err == nil && !podstest.IsReady(got) {
			err = fmt.Errorf("status %+v", got.Status)
		}
		return err
	})
	env.Stop()
	list := func() []*runtimeapi.Container {
		running, err := m.services.Runtime.ListContainers(t.Context(), &runtimeapi.ContainerFilter{
			State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
			LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(pod.UID)}})
		podstest.Must(t, err)
		return running
	}
	before := list()
	if len(before) != 1 {
		t.Fatalf("containers %v, want one", before)
	}
	podstest.Must(t, m.services.Runtime.StopContainer(t.Context(), before[0].Id, 0))
	podstest.Eventually(t, "it runs again", func() bool {
		now := list()
		return len(now) == 1 && now[0].Id != before[0].Id
	})
	awaitFile(t, m.dir+"/log/pods/default_p_"+string(pod.UID)+"/main/1.log", "swordfish")
}

// TestAloneAfterAReboot: a machine that is switched on without a control plane runs its pods as they were, with what
// they read from the API; when it is back, what was deleted meanwhile ends, and the API learns how all are.
func TestAloneAfterAReboot(t *testing.T) {
	m := newMachine(t)
	port, err := freeport.Take()
	podstest.Must(t, err)
	env := testenv.Start(t, func(o *serverconfig.Options) { o.Listen = []string{fmt.Sprintf("127.0.0.1:%d", port)} })
	plain := func(c *config.Config) { c.RememberSecrets = config.RememberPlain }
	stop := startAgent(t, m, env, joinToken(t, env), plain)
	ctx, client := t.Context(), env.Client
	_, err = client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		StringData: map[string]string{"WORD": "swordfish"}}, metav1.CreateOptions{})
	podstest.Must(t, err)
	_, err = client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Data: map[string]string{"file": "from a config map"}}, metav1.CreateOptions{})
	podstest.Must(t, err)
	_, err = client.AppsV1().DaemonSets("default").Create(ctx, daemonSet(), metav1.CreateOptions{})
	podstest.Must(t, err)
	other := podstest.Pod("gone", "sleep")
	other.UID = ""
	env.Eventually("the other pod is there", func(ctx context.Context) error {
		other, err = client.CoreV1().Pods("default").Create(ctx, other.DeepCopy(), metav1.CreateOptions{})
		return err
	})
	ready := func(restarts int32) func(context.Context) error {
		return func(ctx context.Context) error {
			list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=d"})
			if err != nil || len(list.Items) != 1 {
				return fmt.Errorf("%d daemons, %w", len(list.Items), err)
			}
			if pod := &list.Items[0]; !podstest.IsReady(pod) || pod.Status.ContainerStatuses[0].RestartCount != restarts {
				return fmt.Errorf("status %+v", pod.Status)
			}
			return nil
		}
	}
	env.Eventually("the daemon is ready", ready(0))
	running := func(name string) []*runtimeapi.Container {
		list, err := m.services.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{
			State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
			LabelSelector: map[string]string{"io.kubernetes.container.name": name}})
		podstest.Must(t, err)
		return list
	}
	podstest.Eventually(t, "the other pod runs", func() bool { return len(running("main")) == 1 })
	stop()
	m.reboot(t)
	podstest.Must(t, client.CoreV1().Pods("default").Delete(ctx, "gone",
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	env.Stop()
	if len(running("word"))+len(running("main")) > 0 {
		t.Fatal("the reboot left containers")
	}
	began := time.Now()
	startAgent(t, m, env, "", plain)
	podstest.Eventually(t, "the pods run again", func() bool {
		return len(running("word")) == 1 &&
			len(running("main")) == 1
	})
	t.Logf("the pods ran %v after the agent's start", time.Since(began))
	daemon := running("word")[0]
	dir := m.dir + "/log/pods/default_" + daemon.Labels["io.kubernetes.pod.name"] + "_" + daemon.Labels["io.kubernetes.pod.uid"]
	awaitFile(t, dir+"/word/1.log", "swordfish")
	awaitFile(t, dir+"/read/1.log", "from a config map")
	if len(running("main")) != 1 {
		t.Error("a pod that was deleted meanwhile was ended before anybody could know")
	}
	env.Restart()
	client = env.Client
	env.Eventually("the API shows how the daemon is", ready(1))
	awaitNothing(t, m, other.UID)
	if now := running("word"); len(now) != 1 || now[0].Id != daemon.Id {
		t.Errorf("containers of the daemon are %v, want the one that ran before the server was back", now)
	}
}
