package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// eventLine is one event.
type eventLine struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Object  string    `json:"object"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
}

const (
	// mostEvents is how many events a page is given at the beginning.
	mostEvents = 200
	// eventPage is how many are asked for at a time, and mostRead how many are looked at: they come by their names, and
	// not by time, so all have to be looked at to find the newest.
	eventPage, mostRead = 500, 10000
)

// eventsOf says which events are asked for: of one object, of its kind, or all.
func eventsOf(q url.Values) metav1.ListOptions {
	var only []fields.Selector // in this order, which a set would not keep
	for _, field := range []string{"kind", "name"} {
		if value := q.Get(field); value != "" {
			only = append(only, fields.OneTermEqualSelector("involvedObject."+field, value))
		}
	}
	return metav1.ListOptions{FieldSelector: fields.AndSelectors(only...).String()}
}

// newest reads events page by page, and returns the newest of them, the newest last, and from where on to watch; more
// tells that there are others that were not looked at.
func newest(ctx context.Context, client typedcorev1.EventInterface,
	options metav1.ListOptions) (events []corev1.Event, version string, more bool, err error) {
	byTime := func(a, b corev1.Event) int { return timeOf(&a).Compare(timeOf(&b)) }
	options.Limit = eventPage
	for read := 0; ; {
		list, err := client.List(ctx, options)
		if err != nil {
			return nil, "", false, err
		}
		read += len(list.Items)
		events = append(events, list.Items...)
		slices.SortStableFunc(events, byTime)
		events = slices.Clone(events[max(0, len(events)-mostEvents):])
		if more = list.Continue != "" && read >= mostRead; more || list.Continue == "" {
			return events, list.ResourceVersion, more, nil
		}
		options.Continue = list.Continue
	}
}

// events tells the events of a namespace, or of one object of it, as lines of JSON, and
// goes on with those to come.
func (d *Dashboard) events(w http.ResponseWriter, r *http.Request) {
	options := eventsOf(r.URL.Query())
	client := d.core.CoreV1().Events(r.URL.Query().Get("namespace"))
	items, version, more, err := newest(r.Context(), client, options)
	if err != nil {
		answer(w, nil, err)
		return
	}
	options.ResourceVersion = version
	watch, err := client.Watch(r.Context(), options)
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer watch.Stop()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	if more {
		items = append(items, corev1.Event{Type: corev1.EventTypeWarning, Reason: "Incomplete", LastTimestamp: metav1.Now(),
			Message: fmt.Sprintf(
				"there are more than %d events, and these are the newest of so many; look at the events of one DaemonSet or node",
				mostRead,
			)})
	}
	for i := range items {
		if out.Encode(eventLineOf(&items[i])) != nil {
			return
		}
	}
	flush(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case change, ok := <-watch.ResultChan():
			if !ok {
				return
			}
			e, is := change.Object.(*corev1.Event)
			if !is || change.Type == "DELETED" {
				continue
			}
			if out.Encode(eventLineOf(e)) != nil {
				return
			}
			flush(w)
		}
	}
}

func flush(w http.ResponseWriter) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

func timeOf(e *corev1.Event) time.Time {
	for _, at := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time} {
		if !at.IsZero() {
			return at
		}
	}
	return e.CreationTimestamp.Time
}

func eventLineOf(e *corev1.Event) eventLine {
	count := max(e.Count, 1)
	if e.Series != nil {
		count = max(count, e.Series.Count)
	}
	return eventLine{
		At: timeOf(e).UTC(), Type: e.Type, Reason: e.Reason, Message: e.Message, Count: count,
		Object: e.InvolvedObject.Kind + " " + e.InvolvedObject.Name,
	}
}
