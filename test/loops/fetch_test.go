package loops

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/fetch"
)

// An image that nobody can have is known before any daemon is taken away.
func TestAnImageThatNobodyCanFetchTakesNoDaemon(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 10, "waves: [{name: canary, count: 2, fetch: true}]\nfailure: {startDeadline: 2s, then: Rollback}")
	before := f.pods(t.Context(), "demo:v1")
	f.setImage("demo:fail")
	f.phase(v1alpha1.PhaseRolledBack, "its images cannot be fetched", "do not exist")
	f.runs(map[string]int{"demo:v1": 10})
	if after := f.pods(t.Context(), "demo:v1"); after != before {
		t.Errorf("pods are\n%s\nthey were\n%s", after, before)
	}
	f.Eventually("nobody is asked any more", func(ctx context.Context) error {
		list, err := f.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.Annotations[fetch.Name] != "" || fetch.ReportOf(p).Reason != "" {
				return fmt.Errorf("pod %s is: %v", p.Name, p.Annotations)
			}
		}
		return nil
	})
	// The mended template goes through; its nodes have the image before.
	f.setImage("demo:v2")
	f.phase(v1alpha1.PhaseComplete)
	f.runs(map[string]int{"demo:v2": 10})
}

// pods names the pods with the image, by UID.
func (f *fleet) pods(ctx context.Context, image string) string {
	f.t.Helper()
	list, err := f.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.Containers[0].Image == image && p.Status.Phase == corev1.PodRunning {
			out = append(out, p.Spec.NodeName+" "+string(p.UID))
		}
	}
	return strings.Join(out, "\n")
}
