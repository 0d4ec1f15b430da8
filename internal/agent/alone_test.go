package agent

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/testenv"
)

// TestCrashWhileTheServerIsAway: a container whose environment comes from the API starts again without it.
func TestCrashWhileTheServerIsAway(t *testing.T) {
	m := newMachine(t)
	env := testenv.Start(t)
	startAgent(t, m, env, joinToken(t, env))
	_, err := env.Client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Data: map[string]string{"WORD": "swordfish"}}, metav1.CreateOptions{})
	must(t, err)
	pod := boxPod("p", "env", "WORD")
	pod.UID = ""
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}}
	env.Eventually("the pod is there", func(ctx context.Context) error {
		pod, err = env.Client.CoreV1().Pods("default").Create(ctx, pod.DeepCopy(), metav1.CreateOptions{})
		return err
	})
	env.Eventually("the pod is ready", func(ctx context.Context) error {
		got, err := env.Client.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
		if err == nil && !isReady(got) {
			err = fmt.Errorf("status %+v", got.Status)
		}
		return err
	})
	env.Stop()
	list := func() []*runtimeapi.Container {
		running, err := m.services.Runtime.ListContainers(t.Context(), &runtimeapi.ContainerFilter{
			State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
			LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(pod.UID)}})
		must(t, err)
		return running
	}
	before := list()
	if len(before) != 1 {
		t.Fatalf("containers %v, want one", before)
	}
	must(t, m.services.Runtime.StopContainer(t.Context(), before[0].Id, 0))
	eventually(t, "it runs again", func() bool {
		now := list()
		return len(now) == 1 && now[0].Id != before[0].Id
	})
	awaitFile(t, m.dir+"/log/pods/default_p_"+string(pod.UID)+"/main/1.log", "swordfish")
}
