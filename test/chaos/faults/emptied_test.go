package faults

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// The bubble fails the test if a goroutine is left in it.
func TestAStoppedWatchIsEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 2})
		source.Add(&corev1.Node{})
		w, err := toolscache.ToListerWatcherWithContext(Emptied(&toolscache.ListWatch{
			WatchFunc: func(metav1.ListOptions) (watch.Interface, error) {
				return watch.Filter(source, func(e watch.Event) (watch.Event, bool) { return e, true }), nil
			},
		})).WatchWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the event waits for somebody who takes it
		w.Stop()
	})
}
