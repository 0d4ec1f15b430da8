package referred

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func local(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func podOf(uid string, volumes ...corev1.Volume) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)}, Spec: corev1.PodSpec{Volumes: volumes}}
}

func configMapVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local(name)}}}
}

func secretVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}
}

func TestReferences(t *testing.T) {
	pod := podOf("p", configMapVolume("c1"), secretVolume("s1"),
		corev1.Volume{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &corev1.LocalObjectReference{Name: "s2"}}}},
		corev1.Volume{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("c2")}}, {Secret: &corev1.SecretProjection{LocalObjectReference: local("s3")}}}}}},
		corev1.Volume{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{local("s4"), {}}
	pod.Spec.InitContainers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("c3")}}, {SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("s5")}}}}}
	pod.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{{Value: "plain"},
		{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("c4")}}},
		{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local("s6")}}}}}}
	var got []string
	for k := range maps.Keys(references(pod)) {
		got = append(got, fmt.Sprint(k.kind, " ", k.namespace, "/", k.name))
	}
	slices.Sort(got)
	want := []string{"configmaps ns/c1", "configmaps ns/c2", "configmaps ns/c3", "configmaps ns/c4",
		"secrets ns/s1", "secrets ns/s2", "secrets ns/s3", "secrets ns/s4", "secrets ns/s5", "secrets ns/s6"}
	if !slices.Equal(got, want) {
		t.Errorf("refers to %q, want %q", got, want)
	}
}

// server is an API server that can go away, and counts how often it is read.
type server struct {
	*fake.Clientset
	away  atomic.Bool
	reads atomic.Int32
}

func newServer(objects ...runtime.Object) *server {
	s := &server{Clientset: fake.NewClientset(objects...)}
	s.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetVerb() == "get" {
			s.reads.Add(1)
		}
		if s.away.Load() {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	// The fake server hands a watch that begins its own objects, not copies, and the cache changes what it gets.
	s.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		var from metav1.ListOptions
		if a, ok := action.(clienttesting.WatchActionImpl); ok {
			from = a.ListOptions
		}
		w, err := s.Tracker().Watch(action.GetResource(), action.GetNamespace(), from)
		if err != nil {
			return true, nil, err
		}
		return true, watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
			e.Object = e.Object.DeepCopyObject()
			return e, true
		}), nil
	})
	return s
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"k": value}}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// What a pod refers to is there while the API server is away, and as it was last; what no pod refers to is read live.
func TestWhileTheServerIsAway(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Data: map[string][]byte{"k": []byte("secret")}}
	s := newServer(configMap("c", "old"), configMap("other", "x"), secret)
	c := New(t.Context(), s)
	pod := podOf("p", configMapVolume("c"), secretVolume("s"), configMapVolume("missing"))
	c.Follow(pod)
	c.Follow(pod)
	value := func() string {
		got, err := c.ConfigMap(t.Context(), "ns", "c")
		if err != nil {
			t.Fatal(err)
		}
		return got.Data["k"]
	}
	if got := value(); got != "old" {
		t.Errorf("it says %q", got)
	}
	if _, err := c.ConfigMap(t.Context(), "ns", "missing"); !apierrors.IsNotFound(err) {
		t.Errorf("what is not there gives %v", err)
	}
	if got, err := c.Secret(t.Context(), "ns", "s"); err != nil || string(got.Data["k"]) != "secret" {
		t.Errorf("the secret is %v, %v", got, err)
	}
	if _, err := s.CoreV1().ConfigMaps("ns").Update(t.Context(), configMap("c", "new"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change is known", func() bool { return value() == "new" })
	if n := s.reads.Load(); n != 0 {
		t.Errorf("%d live reads, want none", n)
	}
	if got, err := c.ConfigMap(t.Context(), "ns", "other"); err != nil || got.Data["k"] != "x" || s.reads.Load() != 1 {
		t.Errorf("what nobody refers to: %v, %v after %d live reads", got, err, s.reads.Load())
	}
	s.away.Store(true)
	if got := value(); got != "new" {
		t.Errorf("while the server is away it says %q", got)
	}
	if _, err := c.ConfigMap(t.Context(), "ns", "other"); err == nil {
		t.Error("what nobody refers to is there without a server")
	}
}

// What the last pod gave up is not watched any more.
func TestForget(t *testing.T) {
	s := newServer(configMap("c", "1"), configMap("d", "1"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := New(ctx, s)
	watched := func() (names []string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for k := range c.items {
			names = append(names, k.name)
		}
		slices.Sort(names)
		return names
	}
	want := func(when string, names ...string) {
		t.Helper()
		if got := watched(); !slices.Equal(got, names) {
			t.Errorf("%s: %q are watched, want %q", when, got, names)
		}
	}
	c.Follow(podOf("a", configMapVolume("c"), configMapVolume("d")))
	c.Follow(podOf("b", configMapVolume("c")))
	want("two pods", "c", "d")
	c.Follow(podOf("a", configMapVolume("c")))
	want("one gave one up", "c")
	c.Forget("a")
	want("one left", "c")
	c.Forget("b")
	c.Forget("b")
	want("none left")
}

// What an earlier run knew stands for what the API server does not answer for, until it answers; and it is still known for the next run.
func TestRecall(t *testing.T) {
	s := newServer(configMap("c", "new"))
	s.away.Store(true)
	c := New(t.Context(), s)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Data: map[string][]byte{"k": []byte("secret")}}
	news := make(chan struct{}, 100)
	c.Recall(nil, []*corev1.ConfigMap{configMap("c", "old"), configMap("unused", "x")}, []*corev1.Secret{secret}, func() { news <- struct{}{} })
	c.Follow(podOf("p", configMapVolume("c"), secretVolume("s"), configMapVolume("missing")))
	value := func() string {
		got, err := c.ConfigMap(t.Context(), "ns", "c")
		if err != nil {
			t.Fatal(err)
		}
		return got.Data["k"]
	}
	if got := value(); got != "old" {
		t.Errorf("while the server is away it says %q", got)
	}
	if got, err := c.Secret(t.Context(), "ns", "s"); err != nil || string(got.Data["k"]) != "secret" {
		t.Errorf("while the server is away the secret is %v, %v", got, err)
	}
	if _, err := c.ConfigMap(t.Context(), "ns", "missing"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("what nobody knows gives %v", err)
	}
	maps, secrets := c.Known()
	if len(maps) != 1 || maps[0].Data["k"] != "old" || len(secrets) != 1 {
		t.Errorf("for the next run there are %v, %v", maps, secrets)
	}
	s.away.Store(false)
	eventually(t, "what the server says counts", func() bool { return value() == "new" })
	<-news
	eventually(t, "a secret that the server does not have is gone", func() bool {
		_, err := c.Secret(t.Context(), "ns", "s")
		return apierrors.IsNotFound(err)
	})
	eventually(t, "the next run will know what the server said", func() bool {
		maps, secrets := c.Known()
		return len(maps) == 1 && maps[0].Data["k"] == "new" && len(secrets) == 0
	})
}
