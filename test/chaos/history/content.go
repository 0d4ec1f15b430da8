package history

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/revision"
)

// wholeOf is the same of a pod.
func wholeOf(p *corev1.Pod) string { return revision.Join(markOf(p), revision.ContentOf(p)) }

// has reports whether a pod is of a revision. Where content is no part of it a pod of the template is as good as
// any other.
func has(p *corev1.Pod, whole string) bool {
	_, id := revision.Split(whole)
	return wholeOf(p) == whole || id == "" && markOf(p) == whole
}

// alike reports whether two pods can have been held for such of one revision.
func alike(a, b *corev1.Pod) bool { return has(a, wholeOf(b)) || has(b, wholeOf(a)) }

func configMaps(events []Event) (out []*corev1.ConfigMap) {
	for _, e := range events {
		if m, ok := e.Object.(*corev1.ConfigMap); ok {
			out = append(out, m)
		}
	}
	return out
}

// WithContent reports whether a policy makes content a part of revisions.
func WithContent(p *v1alpha1.RolloutPolicy) bool { return p != nil && p.Spec.Content != nil }
