package survey

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
)

// What pods that fetch images tell is known before the daemon's own pod says it, and after they are gone.
func TestWhatPodsFetchIsKnown(t *testing.T) {
	made := metav1.NewTime(time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC))
	by := (&fetchpod.Order{Owner: "agent", Daemon: "agent-x", DaemonUID: "u", Node: "n", Revision: "b",
		Spec: &corev1.PodSpec{Containers: []corev1.Container{{Image: "agent:2"}}}}).Pod()
	by.CreationTimestamp = made
	says := func(text string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-x", UID: "u"}}
		if text != "" {
			p.Annotations = map[string]string{"everynode.io/fetched-images": text}
		}
		return p
	}
	noted := fetch.Report{Revision: "b", At: made.UTC(), Reason: fetch.Fetched}
	for name, c := range map[string]struct {
		note string
		by   []*corev1.Pod
		want fetch.Report
	}{
		"nobody asks":            {},
		"it is asked":            {by: []*corev1.Pod{by}, want: fetch.Report{Revision: "b", At: made.UTC()}},
		"it has answered":        {note: `{"Revision":"b","At":"2026-08-01T12:00:00Z","Reason":"Fetched"}`, want: noted},
		"and its pod is there":   {note: `{"Revision":"b","At":"2026-08-01T12:00:00Z","Reason":"Fetched"}`, by: []*corev1.Pod{by}, want: noted},
		"it is asked of another": {note: `{"Revision":"a","Reason":"Fetched"}`, by: []*corev1.Pod{by}, want: fetch.Report{Revision: "b", At: made.UTC()}},
	} {
		daemon := says(c.note)
		s := New(Objects{Pods: append(c.by, daemon)})
		if got := s.fetched(daemon); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
