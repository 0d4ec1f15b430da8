package event

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

func TestLivesWhereItsObjectLives(t *testing.T) {
	for _, c := range []struct {
		event, object string
		valid         bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"default", "", true}, {"kube-system", "", true}, {"a", "", false},
	} {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: c.event}, InvolvedObject: corev1.ObjectReference{Namespace: c.object}}
		if errs := Validate(e); (len(errs) == 0) != c.valid {
			t.Errorf("event in %q about an object in %q: got %v", c.event, c.object, errs)
		}
	}
}

func TestRow(t *testing.T) {
	base := corev1.Event{Type: "Normal", Reason: "Pulled", Message: " done\n", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", FieldPath: "spec.containers{main}"}}
	base.Name = "p.1"
	old, series := base, base
	old.FirstTimestamp, old.LastTimestamp, old.Count = ago(time.Hour), ago(time.Minute), 7
	old.Source = corev1.EventSource{Component: "kubelet", Host: "n1"}
	series.EventTime = metav1.NewMicroTime(noon.Add(-time.Hour))
	series.ReportingController, series.ReportingInstance = "sched", ""
	series.Series = &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(noon.Add(-2 * time.Minute))}
	single := base
	single.EventTime = metav1.NewMicroTime(noon.Add(-5 * time.Second))
	for want, e := range map[string]corev1.Event{
		"[60s Normal Pulled pod/p spec.containers{main} kubelet, n1 done 60m 7 p.1]": old,
		"[2m Normal Pulled pod/p spec.containers{main} sched done 60m 3 p.1]":        series,
		"[5s Normal Pulled pod/p spec.containers{main}  done 5s 1 p.1]":              single,
	} {
		if got := fmt.Sprint(row(&e, noon)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
