package filtered

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func node(name string) watch.Event {
	return watch.Event{Type: watch.Added, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
}

func marked(e watch.Event) watch.Event {
	e.Type = watch.Bookmark
	return e
}

func TestEventsAreChangedInOrder(t *testing.T) {
	source := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 2})
	source.Add(node("a").Object)
	source.Add(node("b").Object)
	source.Stop()
	var got []string
	for e := range Watch(source, marked).ResultChan() {
		got = append(got, string(e.Type)+" "+e.Object.(*corev1.Node).Name)
	}
	if len(got) != 2 || got[0] != "BOOKMARK a" || got[1] != "BOOKMARK b" {
		t.Errorf("the events are %q", got)
	}
}

// Who stops a watch takes nothing from it any more. The bubble fails the test if a goroutine is left in it.
func TestAStoppedWatchLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		source := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 2})
		source.Add(node("a").Object)
		w := Watch(source, marked)
		synctest.Wait() // the event waits for somebody who takes it
		w.Stop()
		w.Stop()
	})
}
