package storing

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant/resizing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// one is the API of one pod.
type one struct{ pod *corev1.Pod }

func (o *one) GetPod(context.Context, string, string) (*corev1.Pod, error) { return o.pod, nil }

func (o *one) PatchPod(_ context.Context, _, _ string, patch []byte) (*corev1.Pod, error) {
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

// A pod keeps saying which content it refers to, whatever revision gives it other amounts: its copies go by that.
func TestAResizedPodSaysItsContent(t *testing.T) {
	const id = "cztuqmtsjuafgnwgjeic3yhh"
	for name, c := range map[string]struct{ was, to, want string }{
		"content is a part of revisions":           {"t_old." + id, "t_new." + id, "t_new." + id},
		"content is no part of revisions any more": {"t_old." + id, "t_new", "t_new." + id},
		"variants are gone too":                    {"t_old." + id, "t", "t." + id},
		"there never was content":                  {"t_old", "t_new", "t_new"},
		"there are neither":                        {"t_old", "t", ""},
	} {
		api := &one{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: "p", Labels: map[string]string{content.RevisionLabel: c.was},
		}}}
		a := &action.ResizePod{Target: action.Target{Namespace: "ns"}, PodName: "p", PodUID: "p", Revision: c.to}
		gone, err := Resize(context.Background(), api, a, &resizing.Way{}, time.Now())
		if got := api.pod.Labels[content.RevisionLabel]; err != nil || gone || got != c.want {
			t.Errorf("%s: a pod of %s is of %q after a resize to %s (%v), want %q", name, c.was, got, c.to, err, c.want)
		}
	}
}
