package server

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/everynode/everynode/internal/apiserver/bootstrap"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
	"github.com/everynode/everynode/internal/scheduler"
	"github.com/everynode/everynode/internal/server/placing"
	"github.com/everynode/everynode/internal/server/writers"
)

// roomForAll is a scheduler that has room for every pod on node-1.
type roomForAll struct {
	told []string
	// uid is that of the node for which it decides; "" for any.
	uid types.UID
}

func (r *roomForAll) Binding(p *corev1.Pod) *corev1.Binding {
	return scheduler.BindingOf(p, scheduler.Chosen{Name: "node-1", UID: r.uid})
}

func (r *roomForAll) Stored(_ context.Context, p *corev1.Pod) {
	r.told = append(r.told, "stored "+p.Name)
}

func (r *roomForAll) Refused() { r.told = append(r.told, "refused") }

// placedBy has a way create pods with their node, as an account would bind them.
func (w *way) placedBy(t testing.TB, room *roomForAll, binder writers.Inside) executor.Writer {
	t.Helper()
	placed, err := placing.New(w.ds, placing.Config{Scheduler: "nobody", Admit: binder.AdmittedBinding,
		Watched: func() bool { return false },
		Reserve: func(context.Context, *corev1.Pod) (placing.Room, string) { return room, "" }})
	if err != nil {
		t.Fatal(err)
	}
	return placed
}

func forNode1(namespace, name string) *corev1.Pod {
	p := testPod(namespace, name)
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn,
				Values: []string{"node-1"}}},
		}}},
	}}
	return p
}

// TestPodIsStoredAsOneThatIsBound: what is stored is the same in all but time and identity; who may not bind makes no pod
// with a node; and a name that is taken gives the room back.
func TestPodIsStoredAsOneThatIsBound(t *testing.T) {
	t.Parallel()
	client, _, door := ways(t)
	ctx := t.Context()
	get := func(name string) *corev1.Pod {
		t.Helper()
		p, err := client.CoreV1().Pods(door.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Name = ""
		return comparable(p)
	}
	bound, err := door.ds.CreatePod(ctx, forNode1(door.namespace, "bound"))
	if err != nil {
		t.Fatal(err)
	}
	if err := door.sched.Bind(ctx, bound, scheduler.Chosen{Name: "node-1"}); err != nil {
		t.Fatal(err)
	}
	binder := writers.Through(door.door.As(bootstrap.SchedulerAccount()))
	door.as(bootstrap.ControllerAccount("daemon-set-controller"))
	room := &roomForAll{}
	placed := door.placedBy(t, room, binder)
	if _, err := placed.CreatePod(ctx, forNode1(door.namespace, "placed")); err != nil {
		t.Fatal(err)
	}
	if p := get("placed"); p.Spec.NodeName != "node-1" || p.Generation != 1 {
		t.Errorf("it is on %q, of generation %d", p.Spec.NodeName, p.Generation)
	}
	if diff := cmp.Diff(get("bound"), get("placed")); diff != "" {
		t.Errorf("pods differ (-bound +placed):\n%s", diff)
	}
	if _, err := placed.CreatePod(ctx, forNode1(door.namespace, "placed")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the second of a name: %v", err)
	}
	if diff := cmp.Diff([]string{"stored placed", "refused"}, room.told); diff != "" {
		t.Errorf("the scheduler is told (-want +got):\n%s", diff)
	}

	room.told = nil
	nobody := writers.Through(door.door.As(bootstrap.ControllerAccount("nobody")))
	if _, err := door.placedBy(t, room, nobody).CreatePod(ctx, forNode1(door.namespace, "unbound")); err != nil {
		t.Fatal(err)
	}
	if p := get("unbound"); p.Spec.NodeName != "" {
		t.Error("who may not bind gave a pod its node")
	}
	if len(room.told) != 1 || room.told[0] != "refused" {
		t.Errorf("the scheduler is told %q", room.told)
	}
}

// BenchmarkPodGetsItsNode compares one write with two.
func BenchmarkPodGetsItsNode(b *testing.B) {
	_, _, door := ways(b)
	binder := writers.Through(door.door.As(bootstrap.SchedulerAccount()))
	door.as(bootstrap.ControllerAccount("daemon-set-controller"))
	placed := door.placedBy(b, &roomForAll{}, binder)
	bind := binder.Scheduler(nil)
	b.Run("by a binding", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			created, err := door.ds.CreatePod(b.Context(), forNode1(door.namespace, "b-"+rand.String(10)))
			if err != nil {
				b.Fatal(err)
			}
			if err := bind.Bind(b.Context(), created, scheduler.Chosen{Name: "node-1"}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("with its creation", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := placed.CreatePod(b.Context(), forNode1(door.namespace, "c-"+rand.String(10))); err != nil {
				b.Fatal(err)
			}
		}
	})
}
