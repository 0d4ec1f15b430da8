// Package filtered changes the events of a watch on their way. Unlike the library's watch.Filter it leaves nothing
// behind when a watch is stopped while nobody takes its next event.
package filtered

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// Watch passes each event of a watch through change.
func Watch(w watch.Interface, change func(watch.Event) watch.Event) watch.Interface {
	f := &filtered{incoming: w, result: make(chan watch.Event), stopped: make(chan struct{})}
	go f.pass(change)
	return f
}

type filtered struct {
	incoming watch.Interface
	result   chan watch.Event
	once     sync.Once
	stopped  chan struct{}
}

// ResultChan implements watch.Interface.
func (f *filtered) ResultChan() <-chan watch.Event { return f.result }

// Stop implements watch.Interface. What was not taken yet is dropped.
func (f *filtered) Stop() {
	f.once.Do(func() { close(f.stopped) })
	f.incoming.Stop()
}

// pass hands events on until there are no more, or nobody wants them.
func (f *filtered) pass(change func(watch.Event) watch.Event) {
	defer close(f.result)
	for e := range f.incoming.ResultChan() {
		select {
		case f.result <- change(e):
		case <-f.stopped:
			return
		}
	}
}
