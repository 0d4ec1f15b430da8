package storing

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/change/variant/resizing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// one is the API of one pod. The write of the number fails; 0 for none.
type one struct {
	pod   *corev1.Pod
	fails int
}

func (o *one) GetPod(context.Context, string, string) (*corev1.Pod, error) { return o.pod, nil }

func (o *one) PatchPod(_ context.Context, _, _ string, patch []byte) (*corev1.Pod, error) {
	if o.fails--; o.fails == 0 {
		return nil, errors.New("the API does not answer")
	}
	before, err := json.Marshal(o.pod)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
	if err != nil {
		return nil, err
	}
	o.pod = &corev1.Pod{}
	return o.pod, json.Unmarshal(after, o.pod)
}

func (o *one) ResizePod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	return o.PatchPod(ctx, namespace, name, patch)
}

// A pod keeps saying which content it refers to, whatever revision gives it other amounts: its copies go by that. It says
// when it was to be given them.
func TestAResizedPodSaysItsContent(t *testing.T) {
	const id = "cztuqmtsjuafgnwgjeic3yhh"
	for name, c := range map[string]struct{ was, to, want string }{
		"content is a part of revisions":           {"t_old." + id, "t_new." + id, "t_new." + id},
		"content is no part of revisions any more": {"t_old." + id, "t_new", "t_new." + id},
		"variants are gone too":                    {"t_old." + id, "t", "t." + id},
		"there never was content":                  {"t_old", "t_new", "t_new"},
		"there are neither":                        {"t_old", "t", ""},
	} {
		api := &one{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: "p", Labels: map[string]string{content.RevisionLabel: c.was},
		}}}
		a := &action.ResizePod{Target: action.Target{Namespace: "ns"}, PodName: "p", PodUID: "p", Revision: c.to,
			At: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)}
		gone, err := Resize(context.Background(), api, a, &resizing.Way{})
		if got := api.pod.Labels[content.RevisionLabel]; err != nil || gone || got != c.want {
			t.Errorf("%s: a pod of %s is of %q after a resize to %s (%v), want %q", name, c.was, got, c.to, err, c.want)
		}
		if r := resizing.RecordOf(api.pod); r == nil || !r.At.Equal(a.At) {
			t.Errorf("%s: what was asked for at %s is said to be %+v", name, a.At, r)
		}
	}
}

// Two resizes follow each other, and the second one's way was found before the first one showed. It must not be gone:
// what the first one gave would pass for what somebody else wants.
func TestAWayOfBeforeAnotherResizeIsNotGone(t *testing.T) {
	amounts := func(cpu, memory string) variant.Resources {
		return variant.Resources{"main": {Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}}}
	}
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements(amounts("100m", "64Mi")["main"])}}}}
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"}}
	plain.Spec = *template.Spec.DeepCopy()
	way := func(p *corev1.Pod, cpu, memory string) *resizing.Way {
		mark := variant.Mark{Variant: "v", Resources: amounts(cpu, memory)}
		w, err := resizing.Find(p, template, &variant.Outcome{Template: template, Mark: mark})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	a := &action.ResizePod{Target: action.Target{Namespace: "ns"}, PodName: "p", PodUID: "p", Revision: "t_next", At: time.Now()}
	for name, ends := range map[string]bool{"the first one is done": true, "the first one ended half way": false} {
		api := &one{pod: plain.DeepCopy()}
		first, second := way(plain, "400m", "96Mi"), way(plain, "100m", "336Mi")
		if !ends {
			api.fails = 3 // which takes the intent off
		}
		if _, err := Resize(t.Context(), api, a, first); (err == nil) != ends {
			t.Fatalf("%s: the first resize: %v", name, err)
		}
		if _, err := Resize(t.Context(), api, a, second); !apierrors.IsConflict(err) {
			t.Errorf("%s: the second resize: %v", name, err)
		}
		if _, err := Resize(t.Context(), api, a, way(api.pod, "100m", "336Mi")); err != nil {
			t.Errorf("%s: with what the pod says by now: %v", name, err)
		}
		got, want := api.pod.Spec.Containers[0].Resources.Requests, amounts("100m", "336Mi")["main"].Requests
		if !got.Cpu().Equal(*want.Cpu()) || !got.Memory().Equal(*want.Memory()) {
			t.Errorf("%s: the pod asks for %s of cpu and %s of memory", name, got.Cpu(), got.Memory())
		}
	}
	// What was said, and not asked for, is asked for once more.
	api := &one{plain.DeepCopy(), 2}
	w := way(plain, "400m", "96Mi")
	for _, fails := range []bool{true, false} {
		if _, err := Resize(t.Context(), api, a, w); (err != nil) != fails {
			t.Errorf("fails: %t: %v", fails, err)
		}
	}
	if got := api.pod.Spec.Containers[0].Resources.Requests.Cpu(); !got.Equal(resource.MustParse("400m")) {
		t.Errorf("the pod asks for %s of cpu", got)
	}
}
