package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/volumes"
)

// shelf holds config maps.
type shelf map[string]*corev1.ConfigMap

func (s shelf) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	if c, ok := s[name]; ok {
		return c, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
}

func (s shelf) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

func (shelf) ServiceAccountToken(context.Context, string, string,
	*authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	panic("no pod has a token")
}

func (shelf) NodeAllocatable() corev1.ResourceList { return nil }

// A volume is mounted inside another one that is read-only to the runtime.
func TestNestedVolumes(t *testing.T) {
	m := newMachine(t)
	s := stories{machine: m, API: podstest.NewAPI()}
	s.node = startNode(t, m, s.API)
	manager := volumes.New(volumes.Config{RootDir: filepath.Join(m.dir, "volumes"), Objects: shelf{
		"settings": {Data: map[string]string{"a": "setting\n"}}, "keys": {Data: map[string]string{"k": "key\n"}},
	}})
	pod := podstest.Pod("nested", "cat", "/etc/app/a", "/etc/app/keys/k", "/etc/app/keys/deep/er/k")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	for _, name := range []string{"settings", "keys"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}})
	}
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/etc/app"},
		{Name: "keys", MountPath: "/etc/app/keys"},
		{Name: "keys", MountPath: "/etc/app/keys/deep/er"}}
	if err := manager.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	var err error
	s.node.volumes.Given, err = manager.Mounts(t.Context(), pod, main)
	if err != nil {
		t.Fatal(err)
	}
	s.Create(pod)
	s.Await(t, pod.UID, "to succeed", podstest.HasPhase(corev1.PodSucceeded))
	log, err := os.ReadFile(filepath.Join(m.dir, "log/pods/default_nested_uid-nested/main/0.log"))
	if err != nil || strings.Count(string(log), "F setting\n") != 1 || strings.Count(string(log), "F key\n") != 2 {
		t.Errorf("the container read (%v):\n%s", err, log)
	}
	s.Drop(pod.UID)
	awaitNothing(t, m, pod.UID)
	if err := manager.TearDown(t.Context(), pod.UID); err != nil {
		t.Error(err)
	}
}
