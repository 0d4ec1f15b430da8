package foreign

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testenv/machines"
)

// fact is what the daemon's process on a machine is, and reads.
type fact struct {
	process     machines.Process
	level, bits string
}

// fact looks at the process itself.
func (r *realNodes) fact(m *machines.Machine) (f fact, err error) {
	all := m.Containers()
	if len(all) != 1 {
		return f, fmt.Errorf("%s runs %d containers", m.Name, len(all))
	}
	f.process = all[0]
	dir := filepath.Join("/proc", strconv.Itoa(f.process.PID))
	bits, err := os.ReadFile(filepath.Join(dir, "root", "bits"))
	if err != nil {
		return f, err
	}
	file, err := os.ReadFile(filepath.Join(dir, "root", "etc", "agent", "level"))
	if err != nil {
		return f, err
	}
	environment, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return f, err
	}
	for _, e := range strings.Split(string(environment), "\x00") {
		if value, is := strings.CutPrefix(e, "level="); is {
			f.level = value
		}
	}
	if f.bits = string(bits); f.level != string(file) || f.level == "" {
		return f, fmt.Errorf("%s has the level %q in its environment, and %q in its file", m.Name, f.level, file)
	}
	return f, nil
}

// facts are those of all machines.
func (r *realNodes) facts(t *testing.T) map[string]fact {
	t.Helper()
	out := map[string]fact{}
	for _, m := range r.fleet.All {
		f, err := r.fact(m)
		if err != nil {
			t.Fatal(err)
		}
		out[m.Name] = f
	}
	return out
}

// sample looks again and again, and returns since when the process on each machine was as it is asked for.
func (r *realNodes) sample(t *testing.T, is func(fact) bool) func() map[string]time.Time {
	t.Helper()
	seen := map[string]time.Time{}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for {
			last := ctx.Err() != nil
			for _, m := range r.fleet.All {
				f, err := r.fact(m)
				if err == nil && is(f) && seen[m.Name].IsZero() {
					seen[m.Name] = time.Now()
				}
			}
			if last {
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	return func() map[string]time.Time {
		cancel()
		done.Wait()
		return seen
	}
}

// runsWith waits until a machine runs one daemon with that level and these bits, any if none are given, and its one pod
// is ready and says the same.
func (r *realNodes) runsWith(t *testing.T, m *machines.Machine, level, bits string) {
	t.Helper()
	await(t, fmt.Sprintf("%s runs level %s with the bits %q", m.Name, level, bits), func(ctx context.Context) error {
		return r.check(ctx, m, level, bits)
	})
}

func (r *realNodes) check(ctx context.Context, m *machines.Machine, level, bits string) error {
	f, err := r.fact(m)
	if err != nil {
		return err
	}
	if f.level != level || bits != "" && f.bits != bits {
		return fmt.Errorf("%s runs %+v", m.Name, f)
	}
	list, err := r.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + m.Name})
	if err != nil {
		return err
	}
	if len(list.Items) != 1 {
		return fmt.Errorf("%s has %d pods", m.Name, len(list.Items))
	}
	p := &list.Items[0]
	if p.DeletionTimestamp != nil || len(p.Status.ContainerStatuses) != 1 || !p.Status.ContainerStatuses[0].Ready {
		return fmt.Errorf("pod %s is %+v", p.Name, p.Status)
	}
	_, digest, _ := strings.Cut(p.Status.ContainerStatuses[0].ImageID, "@")
	says, err := r.registry.bitsOf(digest)
	if err == nil && says != f.bits {
		err = fmt.Errorf("pod %s says that it runs the bits %q, and its process has %q", p.Name, says, f.bits)
	}
	return err
}

// run3 waits until all machines do.
func (r *realNodes) run3(t *testing.T, level, bits string) {
	t.Helper()
	await(t, "all machines run level "+level+" with the bits "+bits, func(ctx context.Context) error {
		for _, m := range r.fleet.All {
			if err := r.check(ctx, m, level, bits); err != nil {
				return err
			}
		}
		return nil
	})
}

// saysBits waits until the rollout's status has the digest of these bits.
func (r *realNodes) saysBits(t *testing.T, bits string) {
	t.Helper()
	r.saysDigest(t, "agent", r.registry.digestOf(bits))
}

// bits are those that the canary runs.
func (r *realNodes) bits(t *testing.T) string {
	t.Helper()
	f, err := r.fact(r.canary)
	if err != nil {
		t.Fatal(err)
	}
	return f.bits
}

// getBits waits until the canary runs what somebody got by a tag, then until all do, and returns it.
func (r *realNodes) getBits(t *testing.T, tag, level string) (bits string) {
	t.Helper()
	await(t, "the canary runs what the tag "+tag+" names", func(context.Context) error {
		f, err := r.fact(r.canary)
		if bits = f.bits; err == nil && !strings.HasPrefix(bits, tag+" ") {
			err = fmt.Errorf("it runs %q", bits)
		}
		return err
	})
	r.run3(t, level, bits)
	r.saysBits(t, bits)
	r.phase(t, "Complete")
	return bits
}

// podOn is the pod of a machine that stays.
func (r *realNodes) podOn(t *testing.T, m *machines.Machine) corev1.Pod {
	t.Helper()
	for _, p := range r.list(t) {
		if p.Spec.NodeName == m.Name && p.DeletionTimestamp == nil {
			return p
		}
	}
	t.Fatalf("%s has no pod", m.Name)
	return corev1.Pod{}
}

// endings are how containers ended by themselves, by node.
type endings struct {
	mu  sync.Mutex
	all map[string][]corev1.ContainerStateTerminated
}

// watchEndings notes how containers end that fail.
func (r *realNodes) watchEndings(t *testing.T) *endings {
	t.Helper()
	e := &endings{all: map[string][]corev1.ContainerStateTerminated{}}
	w, err := r.client.CoreV1().Pods("default").Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.t.Cleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			p, is := event.Object.(*corev1.Pod)
			if !is {
				continue
			}
			for _, s := range p.Status.ContainerStatuses {
				for _, state := range []corev1.ContainerState{s.State, s.LastTerminationState} {
					if end := state.Terminated; end != nil && end.ExitCode == 2 {
						e.mu.Lock()
						e.all[p.Spec.NodeName] = append(e.all[p.Spec.NodeName], *end)
						e.mu.Unlock()
					}
				}
			}
		}
	}()
	return e
}

// on wants a container to have ended on a node with that code and these words.
func (e *endings) on(node string, code int32, words string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, end := range e.all[node] {
		if end.ExitCode == code && strings.Contains(end.Message, words) {
			return nil
		}
	}
	return fmt.Errorf("these have ended: %+v", e.all)
}

// only wants none to have failed on another node.
func (e *endings) only(t *testing.T, node string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) != 1 || len(e.all[node]) == 0 {
		t.Errorf("daemons have failed on %v, want %s alone", slices.Collect(maps.Keys(e.all)), node)
	}
}
