package recall

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/volumes"
	"github.com/everynode/everynode/internal/testenv/needs"
)

func secret(name, value string, immutable bool) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Data: map[string][]byte{"k": []byte(value)}, Immutable: &immutable}
}

func podWith(secrets ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"}}
	for _, name := range secrets {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name,
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}})
	}
	return pod
}

// run is an agent that reads the Secrets, and ends in order.
func run(t *testing.T, c Config, pod *corev1.Pod, names ...string) (values []string) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	c.Clock, c.Tokens = clock.RealClock{}, func() []volumes.Token { return nil }
	r, err := Open(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() { _ = r.Keeper.Run(ctx) })
	if r.Memory != nil {
		wg.Go(func() { _ = r.Memory.Run(ctx) })
	}
	r.References.Follow(pod)
	for _, name := range names {
		s, err := r.References.Secret(ctx, "ns", name)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, string(s.Data["k"]))
	}
	r.note()
	return values
}

// ran has an earlier run have had the pod, and know no Secret.
func ran(t *testing.T, path string, pod *corev1.Pod) {
	t.Helper()
	keep(t, path, remember.Pod{Pod: pod})
}

// keep has an earlier run have kept what it knew of a pod.
func keep(t *testing.T, path string, pod remember.Pod) {
	t.Helper()
	keeper, _, err := remember.NewPodKeeper(path, remember.Seal{}, func() *remember.Pods {
		return &remember.Pods{Pods: []remember.Pod{pod}}
	}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	keeper.Note()
	ended, end := context.WithCancel(t.Context())
	end()
	if err := keeper.Run(ended); err != nil {
		t.Fatal(err)
	}
}

// A program that keeps no Secrets in memory may run in between. A pod that came then has read what there was then, and
// is not shown what there was before.
func TestPodsThatCameWhileAnotherProgramRan(t *testing.T) {
	needs.Root(t, "mounting needs root")
	c := Config{DataDir: t.TempDir(), MemoryDir: t.TempDir(), Secrets: config.RememberNoSecrets}
	if err := unix.Mount("tmpfs", c.MemoryDir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(c.MemoryDir, 0); err != nil {
			t.Error(err)
		}
	})
	before, later := podWith("fixed"), podWith("fixed")
	later.UID = "later"
	for _, step := range []struct {
		pod       *corev1.Pod
		has, want string
	}{{before, "old", "old"}, {before, "new", "old"}, {later, "new", "new"}} {
		ran(t, filepath.Join(c.DataDir, podsFile), step.pod)
		c.Client = fake.NewClientset(secret("fixed", step.has, true))
		if got := run(t, c, step.pod, "fixed"); got[0] != step.want {
			t.Errorf("pod %s reads %q where there is %q, want %q", step.pod.UID, got, step.has, step.want)
		}
	}
}

// Secrets that are kept on no disk are kept in memory for the agent's next start, if they are immutable: the pods that
// run keep them. Where there is no such memory, or the machine has started again, they are read again.
func TestImmutableSecretsOutliveTheAgent(t *testing.T) {
	needs.Root(t, "mounting needs root")
	data, inMemory := t.TempDir(), t.TempDir()
	if err := unix.Mount("tmpfs", inMemory, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(inMemory, 0); err != nil {
			t.Error(err)
		}
	})
	pod := podWith("fixed", "mutable")
	path := filepath.Join(data, podsFile)
	ran(t, path, pod)
	server := fake.NewClientset(secret("fixed", "fixed-old", true), secret("mutable", "mutable-old", false))
	c := Config{DataDir: data, MemoryDir: filepath.Join(inMemory, "run"), Secrets: config.RememberNoSecrets, Client: server}
	want := func(when string, c Config, values ...string) {
		t.Helper()
		if got := run(t, c, pod, "fixed", "mutable"); strings.Join(got, " ") != strings.Join(values, " ") {
			t.Errorf("%s it reads %q, want %q", when, got, values)
		}
	}
	want("at first", c, "fixed-old", "mutable-old")
	for _, s := range []*corev1.Secret{secret("fixed", "fixed-new", true), secret("mutable", "mutable-new", false)} {
		if err := server.CoreV1().Secrets("ns").Delete(t.Context(), s.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := server.CoreV1().Secrets("ns").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want("after another start", c, "fixed-old", "mutable-new")
	onDisk := c
	onDisk.MemoryDir = filepath.Join(t.TempDir(), "run")
	if isMemory(onDisk.MemoryDir) != nil { // it is, where temporary files are in memory
		want("without such memory", onDisk, "fixed-new", "mutable-new")
	}
	want("after yet another start", c, "fixed-old", "mutable-new")
	kept, err := filepath.Glob(filepath.Join(inMemory, "run", "secrets-*.jsonl"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept in memory is %q, %v", kept, err)
	}
	text, err := os.ReadFile(kept[0])
	if err != nil || strings.Contains(string(text), "mutable-") {
		t.Errorf("kept in memory is %s, %v", text, err)
	}
	if is, err := os.Stat(kept[0]); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("kept in memory is %v, %v", is.Mode(), err)
	}
	if text, err = os.ReadFile(path); err != nil || strings.Contains(string(text), "fixed-") || strings.Contains(string(text), "mutable-") {
		t.Errorf("on the disk is %s, %v", text, err)
	}
	if err := os.Remove(kept[0]); err != nil { // as after a start of the machine
		t.Fatal(err)
	}
	want("after a start of the machine", c, "fixed-new", "mutable-new")
	c.Secrets = config.RememberPlain
	want("with Secrets on the disk", c, "fixed-new", "mutable-new")
	if _, err := os.Stat(kept[0]); !os.IsNotExist(err) {
		t.Errorf("what is on the disk stays in memory too: %v", err)
	}
}
