package why

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// TestEventsOfAPod: the latest five, the newest last, of both kinds of events.
func TestEventsOfAPod(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2030, 1, 1, 10, minute, 0, 0, time.UTC) }
	var events []corev1.Event
	for i := range 6 {
		events = append(events, corev1.Event{Type: "Normal", Reason: fmt.Sprint("Old", i), Message: "m\n",
			LastTimestamp: metav1.NewTime(at(i))})
	}
	events = append([]corev1.Event{
		{Type: "Warning", Reason: "Series", Message: "m", Count: 2, EventTime: metav1.NewMicroTime(at(0)),
			Series: &corev1.EventSeries{Count: 9, LastObservedTime: metav1.NewMicroTime(at(30))}},
		{Type: "Normal", Reason: "New", Message: "m", EventTime: metav1.NewMicroTime(at(20))},
	}, events...)
	var p Place
	p.AddEvents(events)
	want := []string{
		"10:03:00 UTC Normal Old3: m", "10:04:00 UTC Normal Old4: m", "10:05:00 UTC Normal Old5: m",
		"10:20:00 UTC Normal New: m", "10:30:00 UTC Warning Series (9 times): m",
	}
	if !slices.Equal(p.Events, want) {
		t.Errorf("events are\n%q, want\n%q", p.Events, want)
	}
}

// TestWhoNeedsMore: where nothing is wrong, events and logs say nothing.
func TestWhoNeedsMore(t *testing.T) {
	for _, verdict := range Verdicts {
		well := verdict == standing.Current || verdict == standing.Waiting || verdict == standing.NotSelected
		p := Place{Verdict: string(verdict), Pod: "p", Container: "c"}
		if events, log := p.AsksForMore(); events == well || log == well {
			t.Errorf("%s asks for events %t, log %t", verdict, events, log)
		}
	}
}

// TestOneDaemonSetOfANode: only what was asked for, with what is wrong with the node.
func TestOneDaemonSetOfANode(t *testing.T) {
	w, ds, _ := surveytest.Fleet(t)
	w.DaemonSet("other", "example.com/other:1")
	r, err := Node(survey.New(w.Objects), "node-dead", ds)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.DaemonSets) != 1 || r.DaemonSets[0].DaemonSet != ds.Name || r.Fault == "" {
		t.Errorf("the report is %+v", r)
	}
}
