package volumes

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/everynode/everynode/internal/agent/referred"
	"github.com/everynode/everynode/internal/change/content"
)

// cached reads ConfigMaps and Secrets as the agent does.
type cached struct {
	*fakeObjects
	cache *referred.Cache
}

func (c cached) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return c.cache.ConfigMap(ctx, namespace, name)
}

func (c cached) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return c.cache.Secret(ctx, namespace, name)
}

func madeOf(name, value string, immutable *bool) (*corev1.ConfigMap, *corev1.Secret) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: name}
	return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"k": value}, Immutable: immutable},
		&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"s": []byte(value)}, Immutable: immutable}
}

// Copies that are deleted, or replaced, reach no running pod: not in volumes of their own, projected ones, or those that
// the pod is pointed at; what can be changed shows as ever what becomes of it, also in volumes that may be empty.
func TestWhatBecomesOfImmutableObjectsIsNotShown(t *testing.T) {
	m, objects := newTest(t)
	server := fake.NewClientset()
	cache := referred.New(t.Context(), server)
	m.cfg.Objects = cached{objects, cache}
	pointedAt := "d-" + strings.Repeat("b", 24)
	api := server.CoreV1()
	put := func(value string, immutable *bool) {
		t.Helper()
		for _, name := range []string{"c", pointedAt, "mutable"} {
			if name == "mutable" {
				immutable = nil
			}
			configMap, secret := madeOf(name, value, immutable)
			if _, err := api.ConfigMaps("ns").Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := api.Secrets("ns").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func() {
		t.Helper()
		for _, name := range []string{"c", pointedAt, "mutable"} {
			if err := api.ConfigMaps("ns").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := api.Secrets("ns").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	volumesOf := func(name string) []corev1.Volume {
		own := corev1.LocalObjectReference{Name: name}
		return []corev1.Volume{
			{Name: name + "-map", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: own, Optional: ptr(true)}}},
			{Name: name + "-secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName: name, Optional: ptr(true)}}},
			{Name: name + "-all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: own, Optional: ptr(true)}},
					{Secret: &corev1.SecretProjection{LocalObjectReference: own, Optional: ptr(true)}},
				}}}},
		}
	}
	put("old", ptr(true))
	pod := podWith(append(volumesOf("c"), volumesOf("mutable")...)...)
	pod.Namespace = "ns"
	live := podWith(volumesOf("d")[0])
	live.Namespace, live.UID = "ns", "live"
	live, _ = point(t, live, content.Pointed{Ref: content.Ref{Kind: content.ConfigMap, Name: "d"}, Copy: pointedAt})
	for _, pod := range []*corev1.Pod{pod, live} {
		cache.Follow(pod)
		setUp(t, m, pod)
	}
	want := func(name, value string) {
		t.Helper()
		var k, s []string
		if value != "" {
			k, s = []string{"k=" + value}, []string{"s=" + value}
		}
		wantShown(t, m.volumeDir(pod.UID, "configmap", name+"-map"), k...)
		wantShown(t, m.volumeDir(pod.UID, "secret", name+"-secret"), s...)
		wantShown(t, m.volumeDir(pod.UID, "projected", name+"-all"), append(k, s...)...)
		wantShown(t, m.volumeDir(live.UID, "configmap", "d-map"), "k=old")
	}
	// known waits until the cache says so of what can be changed.
	known := func(value string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			configMap, err := cache.ConfigMap(t.Context(), "ns", "mutable")
			secret, secretErr := cache.Secret(t.Context(), "ns", "mutable")
			if value == "" && apierrors.IsNotFound(err) && apierrors.IsNotFound(secretErr) ||
				err == nil && secretErr == nil && configMap.Data["k"] == value && string(secret.Data["s"]) == value {
				m.refresh(t.Context())
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("what can be changed is %v, %v", configMap, secret)
			}
		}
	}
	want("c", "old")
	want("mutable", "old")
	remove()
	known("")
	want("c", "old")
	want("mutable", "")
	for _, immutable := range []*bool{nil, ptr(true)} {
		put("new", immutable)
		known("new")
		want("c", "old")
		want("mutable", "new")
		remove()
		known("")
	}
	// Another pod that comes when this one is gone has what there is then.
	put("newest", ptr(true))
	known("newest")
	if err := m.TearDown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	cache.Forget(pod.UID)
	pod.UID = "next"
	cache.Follow(pod)
	setUp(t, m, pod)
	want("c", "newest")
}
