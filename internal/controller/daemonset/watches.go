package daemonset

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// patience is how long a watch may be away. One that ends is begun again within
	// seconds, also when its server restarts.
	patience = 30 * time.Second
	// settling is how long one must last that was away for longer: until then what
	// happened meanwhile has been taken in.
	settling = 5 * time.Second
)

// plural is what messages call the kinds.
var plural = map[string]string{kindPolicy: "RolloutPolicies", kindRollout: "DaemonSetRollouts",
	kindVariant: "DaemonSetVariants", kindStartup: "NodeStartups"}

// Watches notices when Everynode's own kinds cannot be listed or watched. An informer
// keeps what it knew and says nothing. Its methods may be called by several goroutines.
type Watches struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	kinds map[reflect.Type]*watched
}

// watched is what is known of one kind.
type watched struct {
	name string
	// open is how many watches are, since when the last one was opened; good when one was
	// open last, at first when somebody began to ask.
	open        int
	since, good time.Time
	err         error
	// lost says why it is, from the moment on when it was noticed.
	lost string
}

// NewWatches returns one that has seen nothing.
func NewWatches(c clock.PassiveClock) *Watches {
	return &Watches{clock: c, kinds: map[reflect.Type]*watched{}}
}

// Of returns what lists and watches the kind and is seen to do so. What is of no interest is returned as it is.
func (w *Watches) Of(lw toolscache.ListerWatcher, of runtime.Object) toolscache.ListerWatcher {
	name, own := plural[reflect.TypeOf(of).Elem().Name()]
	if !own {
		return lw
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := &watched{name: name, good: w.clock.Now()}
	w.kinds[reflect.TypeOf(of)] = k
	with := toolscache.ToListerWatcherWithContext(lw)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := with.ListWithContext(ctx, o)
			w.answered(ctx, k, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			got, err := with.WatchWithContext(ctx, o)
			w.answered(ctx, k, err)
			if err != nil {
				return got, err
			}
			return w.opened(k, got), nil
		},
	}
}

func (w *Watches) answered(ctx context.Context, k *watched, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() == nil {
		k.err = err
	}
}

// opened counts a watch as open until it is stopped, as a reader does with each that
// has ended.
func (w *Watches) opened(k *watched, got watch.Interface) watch.Interface {
	w.mu.Lock()
	defer w.mu.Unlock()
	k.open, k.since = k.open+1, w.clock.Now()
	return &openWatch{Interface: got, closed: sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		k.open, k.good = k.open-1, w.clock.Now()
	})}
}

type openWatch struct {
	watch.Interface
	closed func()
}

// Stop ends the watch.
func (o *openWatch) Stop() {
	o.closed()
	o.Interface.Stop()
}

// Lost says why the kind of the object cannot be followed; "" while it can, and for
// kinds that nobody asked for.
func (w *Watches) Lost(of runtime.Object) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, now := w.kinds[reflect.TypeOf(of)], w.clock.Now()
	switch {
	case k == nil:
		return ""
	case k.open > 0 && (k.lost == "" || now.Sub(k.since) >= settling):
		k.lost = ""
	case k.open > 0 || k.lost != "":
	case apierrors.IsForbidden(k.err), apierrors.IsNotFound(k.err), now.Sub(k.good) >= patience:
		k.lost = k.why()
	}
	return k.lost
}

func (k *watched) why() string {
	if k.err == nil {
		return fmt.Sprintf("%s cannot be watched: there is none open", k.name)
	}
	return fmt.Sprintf("%s cannot be read: %v", k.name, k.err)
}
