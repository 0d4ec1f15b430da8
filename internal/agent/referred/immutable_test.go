package referred

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

func sealed(c *corev1.ConfigMap) *corev1.ConfigMap {
	c.Immutable, c.UID = new(true), types.UID("uid-"+c.Data["k"])
	return c
}

func sealedSecret(name, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + value)},
		Data: map[string][]byte{"k": []byte(value)}, Immutable: new(true)}
}

func imagePullSecret(pod *corev1.Pod, name string) *corev1.Pod {
	pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, local(name))
	return pod
}

// text is what the cache says of a ConfigMap: its value, "none" or "?".
func text(t *testing.T, c *Cache, name string) string {
	t.Helper()
	got, err := c.ConfigMap(t.Context(), "ns", name)
	switch {
	case apierrors.IsNotFound(err):
		return "none"
	case err != nil:
		return "?"
	}
	return got.Data["k"]
}

func secretText(t *testing.T, c *Cache, name string) string {
	t.Helper()
	got, err := c.Secret(t.Context(), "ns", name)
	switch {
	case apierrors.IsNotFound(err):
		return "none"
	case err != nil:
		return "?"
	}
	return string(got.Data["k"])
}

// counted counts the watches that go on.
type counted struct {
	watch.Interface
	open *atomic.Int32
	once sync.Once
}

func (w *counted) Stop() {
	w.once.Do(func() { w.open.Add(-1) })
	w.Interface.Stop()
}

func (s *server) countWatches() *atomic.Int32 {
	open := &atomic.Int32{}
	s.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := s.Tracker().Watch(action.GetResource(), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		open.Add(1)
		return true, &counted{Interface: w, open: open}, nil
	})
	return open
}

func (s *server) remove(t *testing.T, name string) {
	t.Helper()
	if err := s.CoreV1().ConfigMaps("ns").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *server) put(t *testing.T, o *corev1.ConfigMap) {
	t.Helper()
	if _, err := s.CoreV1().ConfigMaps("ns").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// An immutable object is what it was when it was read for as long as a pod refers to it, whatever becomes of it, and is
// not watched. What can be changed is followed as ever.
func TestWhatIsImmutableIsKept(t *testing.T) {
	s := newServer(sealed(configMap("c", "old")), configMap("m", "old"), sealedSecret("s", "old"))
	watches := s.countWatches()
	c := New(t.Context(), s)
	pod := imagePullSecret(podOf("a", configMapVolume("c"), configMapVolume("m")), "s")
	c.Follow(pod)
	want := func(when, fixed, mutable, secret string) {
		t.Helper()
		if got := text(t, c, "c"); got != fixed {
			t.Errorf("%s the immutable ConfigMap says %q, want %q", when, got, fixed)
		}
		if got := text(t, c, "m"); got != mutable {
			t.Errorf("%s the other ConfigMap says %q, want %q", when, got, mutable)
		}
		if got := secretText(t, c, "s"); got != secret {
			t.Errorf("%s the immutable Secret says %q, want %q", when, got, secret)
		}
	}
	want("at first", "old", "old", "old")
	eventually(t, "only what can change is watched", func() bool { return watches.Load() == 1 })
	s.remove(t, "c")
	s.remove(t, "m")
	if err := s.CoreV1().Secrets("ns").Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what can change is gone", func() bool { return text(t, c, "m") == "none" })
	want("after a deletion", "old", "none", "old")
	s.put(t, configMap("c", "new"))
	s.put(t, configMap("m", "new"))
	if _, err := s.CoreV1().Secrets("ns").Create(t.Context(), sealedSecret("s", "new"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what can change is there", func() bool { return text(t, c, "m") == "new" })
	want("of another that has the name", "old", "new", "old")
	second := imagePullSecret(podOf("b", configMapVolume("c"), configMapVolume("m")), "s")
	c.Follow(second)
	c.Forget("a")
	want("for the next pod beside it", "old", "new", "old")
	s.away.Store(true)
	want("while the server is away", "old", "new", "old")
	maps, secrets := c.Known()
	if len(maps) != 2 || len(secrets) != 1 || string(secrets[0].Data["k"]) != "old" {
		t.Errorf("for the next run there are %v, %v", maps, secrets)
	}
	s.away.Store(false)
	c.Forget("b")
	eventually(t, "nothing is watched for nobody", func() bool { return watches.Load() == 0 })
	c.Follow(second)
	want("for a pod that comes after the last", "new", "new", "new")
	if n := s.reads.Load(); n != 0 {
		t.Errorf("%d live reads, want none", n)
	}
}

// An object that is made immutable is kept from then on.
func TestWhatBecomesImmutableIsKept(t *testing.T) {
	s := newServer(configMap("c", "1"))
	c := New(t.Context(), s)
	c.Follow(podOf("a", configMapVolume("c")))
	if got := text(t, c, "c"); got != "1" {
		t.Errorf("it says %q", got)
	}
	if _, err := s.CoreV1().ConfigMaps("ns").Update(t.Context(), sealed(configMap("c", "2")), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change is known", func() bool { return text(t, c, "c") == "2" })
	s.remove(t, "c")
	s.put(t, configMap("c", "3"))
	c.Follow(podOf("b", configMapVolume("c"), configMapVolume("c2")))
	if got := text(t, c, "c2"); got != "none" {
		t.Errorf("another one says %q", got)
	}
	if got := text(t, c, "c"); got != "2" {
		t.Errorf("it says %q, want what it was when it was made immutable", got)
	}
}

// What was read live, as the watch had told nothing yet, was read.
func TestWhatIsReadLiveIsKept(t *testing.T) {
	s := newServer(sealed(configMap("c", "old")))
	s.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("too many requests")
	})
	c := New(t.Context(), s)
	told := make(chan struct{}, 100)
	c.Recall(nil, nil, nil, func() { told <- struct{}{} })
	c.Follow(podOf("a", configMapVolume("c")))
	if got := text(t, c, "c"); got != "old" {
		t.Errorf("it says %q", got)
	}
	s.remove(t, "c")
	if got := text(t, c, "c"); got != "old" || s.reads.Load() != 1 {
		t.Errorf("after a deletion it says %q, after %d live reads", got, s.reads.Load())
	}
	if len(told) == 0 {
		t.Error("nothing is told for the next run")
	}
}

// However fast others follow it under its name, one pod never reads two of them.
func TestOneOfManyImmutableObjects(t *testing.T) {
	s := newServer()
	c := New(t.Context(), s)
	for round := range 5 {
		pod := podOf("p"+strconv.Itoa(round), configMapVolume("c"))
		s.put(t, sealed(configMap("c", strconv.Itoa(round))))
		c.Follow(pod)
		var readers sync.WaitGroup
		var seen sync.Map
		var reading atomic.Int32
		for range 2 {
			reading.Add(1)
			readers.Go(func() {
				defer reading.Add(-1)
				for n := 0; n < 50; {
					if got := text(t, c, "c"); got != "none" {
						seen.Store(got, true)
						n++
					}
				}
			})
		}
		s.remove(t, "c")
		for i := 0; reading.Load() > 0; i++ {
			s.put(t, sealed(configMap("c", fmt.Sprint(round, " ", i))))
			time.Sleep(time.Millisecond) // no more than the watch of the fake server has room for
			s.remove(t, "c")
		}
		readers.Wait()
		var all []any
		seen.Range(func(value, _ any) bool { all = append(all, value); return true })
		if len(all) > 1 {
			t.Fatalf("one pod read %v", all)
		}
		c.Forget(pod.UID)
	}
}

// The pods of an earlier run have what they had, also where another object has the name by now, and however they and
// new pods come. The last of them takes it along.
func TestRecalledPodsKeepWhatIsImmutable(t *testing.T) {
	s := newServer(sealed(configMap("c", "new")), sealed(configMap("nobodys", "new")))
	watches := s.countWatches()
	c := New(t.Context(), s)
	a, b := podOf("a", configMapVolume("c")), podOf("b", configMapVolume("c"))
	c.Recall([]*corev1.Pod{a, b}, []*corev1.ConfigMap{sealed(configMap("c", "old")), sealed(configMap("nobodys", "old"))}, nil, func() {})
	later := podOf("later", configMapVolume("c"), configMapVolume("nobodys"))
	c.Follow(later)
	if got := text(t, c, "c"); got != "old" {
		t.Errorf("it says %q, want what the pods of before have", got)
	}
	if got := text(t, c, "nobodys"); got != "new" {
		t.Errorf("what no pod of before referred to says %q", got)
	}
	c.Follow(a)
	c.Forget("later")
	c.Forget("b") // the API does not have it any more
	if got := text(t, c, "c"); got != "old" {
		t.Errorf("it says %q beside one pod of before", got)
	}
	if maps, _ := c.Known(); len(maps) != 1 || maps[0].Data["k"] != "old" {
		t.Errorf("for the next run there is %v", maps)
	}
	c.Forget("a")
	c.Follow(later)
	if got := text(t, c, "c"); got != "new" {
		t.Errorf("it says %q after the last pod of before", got)
	}
	eventually(t, "nothing is watched", func() bool { return watches.Load() == 0 })
}
