package pod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestLogOptions(t *testing.T) {
	for want, options := range map[string]corev1.PodLogOptions{
		"":                     {TailLines: ptr.To[int64](0), LimitBytes: ptr.To[int64](1), SinceSeconds: ptr.To[int64](1)},
		"tailLines: Invalid":   {TailLines: ptr.To[int64](-1)},
		"limitBytes: Invalid":  {LimitBytes: ptr.To[int64](0)},
		"at most one of":       {SinceSeconds: ptr.To[int64](1), SinceTime: &metav1.Time{}},
		"[tailLines: Invalid":  {TailLines: ptr.To[int64](-1), LimitBytes: ptr.To[int64](0)},
		"must be greater than": {SinceSeconds: ptr.To[int64](0)},
	} {
		err := checkLogOptions("p", &options)
		switch {
		case want == "" && err != nil:
			t.Errorf("%+v: %v", options, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), `PodLogOptions "p" is invalid: `) || !strings.Contains(err.Error(), want)):
			t.Errorf("%+v: got %v, want %q", options, err, want)
		}
	}
}
