package placing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/everynode/everynode/internal/apiserver/registry/pod"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
)

// world is an API with a scheduler, which note down what is done.
type world struct {
	executor.Writer
	storage.Interface
	done   []string
	stored *corev1.Pod
	// noRoom and notAdmitted are why there is no room, or no binding; fails is how the write ends.
	noRoom      string
	notAdmitted error
	watched     bool
	fails       error
}

// CreatePod stores the pod as the API does, with a name of its own in the context's place.
func (w *world) CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	p = p.DeepCopy()
	p.UID, p.Generation = "uid", 1
	err := pod.Placing(w, &pod.Targets{}).Create(ctx, "/pods/"+p.Name, p, &corev1.Pod{}, 0)
	if err != nil {
		return nil, err
	}
	return w.stored, nil
}

func (w *world) Create(_ context.Context, _ string, obj, _ runtime.Object, _ uint64) error {
	w.stored = obj.(*corev1.Pod)
	w.done = append(w.done, "write on "+w.stored.Spec.NodeName)
	return w.fails
}

func (w *world) Binding(p *corev1.Pod) *corev1.Binding {
	return &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
}

func (w *world) Stored(_ context.Context, p *corev1.Pod) {
	w.done = append(w.done, "tell of "+string(p.UID))
}

func (w *world) Refused() { w.done = append(w.done, "give back") }

func (w *world) config(r prometheus.Registerer) Config {
	return Config{
		Scheduler: "ours", Metrics: r, Watched: func() bool { return w.watched },
		Reserve: func(_ context.Context, p *corev1.Pod) (Room, string) {
			if w.noRoom != "" {
				return nil, w.noRoom
			}
			w.done = append(w.done, "reserve for "+string(p.UID))
			return w, ""
		},
		Admit: func(_ context.Context, b *corev1.Binding) (*corev1.Binding, error) {
			if w.notAdmitted != nil {
				return nil, w.notAdmitted
			}
			w.done = append(w.done, fmt.Sprintf("admit %s %s on %s", b.Name, b.UID, b.Target.Name))
			b = b.DeepCopy()
			b.Labels = map[string]string{"zone": "z"}
			return b, nil
		},
	}
}

func daemon() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{SchedulerName: "ours",
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField,
					Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}},
			}}},
		}}}}
}

// TestCreations: what is done for a pod, in which order, and what is counted.
func TestCreations(t *testing.T) {
	full := []string{"reserve for uid", "admit p uid on n1", "write on n1"}
	for name, c := range map[string]struct {
		world   world
		pod     func(*corev1.Pod)
		done    []string
		counted string
	}{
		"with its node": {world{}, nil, append(slices.Clone(full), "tell of uid"), "created_with_node"},
		"refused": {world{fails: apierrors.NewAlreadyExists(corev1.Resource("pods"), "p")}, nil,
			append(slices.Clone(full), "give back"), ""},
		"nobody knows": {world{fails: apierrors.NewTimeoutError("", 0)}, nil, full, ""},
		"cut off":      {world{fails: context.DeadlineExceeded}, nil, full, ""},
		"no room":      {world{noRoom: "none"}, nil, []string{"write on "}, "left_to_scheduler none"},
		"no room, and refused": {world{noRoom: "none", fails: apierrors.NewAlreadyExists(corev1.Resource("pods"), "p")}, nil,
			[]string{"write on "}, ""},
		"bindings are watched": {world{watched: true}, nil, []string{"write on "}, "left_to_scheduler bindings-watched"},
		"the binding is refused": {world{notAdmitted: errors.New("no")}, nil,
			[]string{"reserve for uid", "give back", "write on "}, "left_to_scheduler binding-refused"},
		"for another scheduler": {world{}, func(p *corev1.Pod) { p.Spec.SchedulerName = "theirs" },
			[]string{"write on "}, "left_to_scheduler other-scheduler"},
		"with a node already": {world{}, func(p *corev1.Pod) { p.Spec.NodeName = "n2" }, []string{"write on n2"}, ""},
	} {
		registry := prometheus.NewRegistry()
		w, err := New(&c.world, c.world.config(registry))
		if err != nil {
			t.Fatal(err)
		}
		p := daemon()
		if c.pod != nil {
			c.pod(p)
		}
		created, err := w.CreatePod(t.Context(), p)
		if !errors.Is(err, c.world.fails) || (err == nil) != (created != nil) {
			t.Errorf("%s: got %v, %v", name, created, err)
		}
		if !slices.Equal(c.world.done, c.done) {
			t.Errorf("%s: done is %q\nwant %q", name, c.world.done, c.done)
		}
		if got := counted(t, registry); got != c.counted {
			t.Errorf("%s: counted is %q, want %q", name, got, c.counted)
		}
	}
}

// TestStoredPod: it is as if it had been bound.
func TestStoredPod(t *testing.T) {
	w := &world{}
	writer, err := New(w, w.config(nil))
	if err != nil {
		t.Fatal(err)
	}
	given := daemon()
	got, err := writer.CreatePod(t.Context(), given)
	if err != nil {
		t.Fatal(err)
	}
	if given.Spec.NodeName != "" || given.Labels != nil {
		t.Errorf("the pod that was given was changed: %+v", given)
	}
	if len(got.Status.Conditions) != 1 || got.Spec.Affinity == nil || got.Labels["zone"] != "z" {
		t.Fatalf("stored is %+v", got)
	}
	c := got.Status.Conditions[0]
	if c.Type != corev1.PodScheduled || c.Status != corev1.ConditionTrue || c.ObservedGeneration != 1 ||
		c.LastTransitionTime.IsZero() {
		t.Errorf("the condition is %+v", c)
	}
}

// counted is what is not 0.
func counted(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		name := strings.TrimSuffix(strings.TrimPrefix(f.GetName(), "daemonset_controller_pods_"), "_total")
		for _, m := range f.GetMetric() {
			if m.GetCounter().GetValue() == 0 {
				continue
			}
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}
