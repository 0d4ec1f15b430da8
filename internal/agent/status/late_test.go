package status

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// lateWriter is an API that merges patches as an API server does. What it did it does not answer while late.
type lateWriter struct {
	mu    sync.Mutex
	pod   corev1.Pod
	late  bool
	calls chan struct{}
}

func (w *lateWriter) PatchStatus(_ context.Context, pod Pod, before, after *corev1.PodStatus) (*corev1.Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.calls <- struct{}{} }()
	patch, err := statusPatch(pod.UID, before, after)
	if err != nil {
		return nil, err
	}
	has, err := json.Marshal(w.pod)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(has, patch, corev1.Pod{})
	if err != nil {
		return nil, err
	}
	version, _ := strconv.Atoi(w.pod.ResourceVersion)
	w.pod = corev1.Pod{}
	if err := json.Unmarshal(merged, &w.pod); err != nil {
		return nil, err
	}
	w.pod.ResourceVersion = strconv.Itoa(version + 1)
	if w.late {
		return nil, errors.New("context deadline exceeded")
	}
	return w.pod.DeepCopy(), nil
}

func (w *lateWriter) Delete(context.Context, Pod) error { return nil }

// A status that was written, though the answer said that it was not, does not stay when the pod is as it was before.
func TestWrittenThoughTheAnswerSaysNot(t *testing.T) {
	mounted := func(is corev1.ConditionStatus, at int64) corev1.PodStatus {
		s := readiness(corev1.ConditionTrue)
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: content.MountedCondition, Status: is,
			LastTransitionTime: metav1.Unix(at, 0)})
		return s
	}
	waits := func() corev1.PodStatus {
		s := mounted(corev1.ConditionFalse, 1)
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: nodestartup.WaitsCondition, Status: corev1.ConditionTrue})
		return s
	}
	last := mounted(corev1.ConditionFalse, 3)
	for name, meanwhile := range map[string]corev1.PodStatus{"another value": mounted(corev1.ConditionTrue, 2), "one more": waits()} {
		t.Run(name, func(t *testing.T) {
			w := &lateWriter{calls: make(chan struct{}, 100)}
			m := start(t, w)
			pod := testPod()
			pod.ResourceVersion = "1"
			pod.Status = mounted(corev1.ConditionFalse, 1)
			w.pod = *pod.DeepCopy()
			w.late = true
			m.Set(pod, meanwhile)
			<-w.calls
			m.Set(pod, last)
			w.mu.Lock()
			w.late = false
			w.mu.Unlock()
			for !m.Reported() {
				time.Sleep(10 * time.Millisecond)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, c := range w.pod.Status.Conditions {
				if c.Type == content.MountedCondition && c.Status != corev1.ConditionFalse || c.Type == nodestartup.WaitsCondition {
					t.Errorf("the API has %s=%s", c.Type, c.Status)
				}
			}
		})
	}
}
