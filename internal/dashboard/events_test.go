package dashboard

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// pages answers lists of events page by page, in an order that is not that of time.
func pages(t *testing.T, all int) (*fake.Clientset, *int) {
	t.Helper()
	core, asked := fake.NewClientset(), 0
	core.PrependReactor("list", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		if options.Limit != eventPage {
			t.Errorf("it asks for %d at once", options.Limit)
		}
		asked++
		from := 0
		_, _ = fmt.Sscan(options.Continue, &from)
		list := &corev1.EventList{ListMeta: metav1.ListMeta{ResourceVersion: "77"}}
		for i := from; i < min(all, from+eventPage); i++ {
			at := time.Unix(int64(i*7919%all), 0)
			list.Items = append(list.Items, corev1.Event{LastTimestamp: metav1.NewTime(at), Message: fmt.Sprint(at.Unix())})
		}
		if next := from + eventPage; next < all {
			list.Continue = fmt.Sprint(next)
		}
		return true, list, nil
	})
	return core, &asked
}

func TestTheNewestEvents(t *testing.T) {
	for _, c := range []struct {
		all, shown, asked int
		more              bool
	}{
		{0, 0, 1, false}, {3, 3, 1, false}, {eventPage + 1, mostEvents, 2, false}, {mostRead, mostEvents, mostRead / eventPage, false},
		{10 * mostRead, mostEvents, mostRead / eventPage, true},
	} {
		core, asked := pages(t, c.all)
		events, version, more, err := newest(t.Context(), core.CoreV1().Events("default"), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(events) != c.shown || *asked != c.asked || more != c.more || version != "77" {
			t.Errorf("of %d it shows %d after %d requests, more %v, version %s; want %+v", c.all, len(events), *asked, more, version, c)
		}
		for i := range events {
			if want := fmt.Sprint(c.all - len(events) + i); !c.more && events[i].Message != want {
				t.Fatalf("of %d, number %d is that of second %s, want %s", c.all, i, events[i].Message, want)
			}
		}
	}
}

func TestWhichEventsAreAskedFor(t *testing.T) {
	for query, want := range map[string]string{
		"":                                   "",
		"namespace=x":                        "",
		"name=agent&kind=DaemonSet":          "involvedObject.kind=DaemonSet,involvedObject.name=agent",
		"name=n1,involvedObject.kind%3DNode": `involvedObject.name=n1\,involvedObject.kind\=Node`,
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := eventsOf(q).FieldSelector; got != want {
			t.Errorf("%q asks for %q, want %q", query, got, want)
		}
	}
}
