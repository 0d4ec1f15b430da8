package dashboard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// troubles are the kinds of which nothing new is known, because they cannot be read at the moment.
type troubles struct {
	// changed is called after there is another trouble, or one less.
	changed func()

	mu sync.Mutex // guards of
	of map[string]trouble
}

// trouble is why a kind cannot be read, and since when.
type trouble struct {
	since time.Time
	why   string
}

// watched returns a lister that takes note of what goes wrong, and of what goes well again. An informer tries for
// ever, and tells nobody.
func (t *troubles) watched(what string, l lister) lister {
	return lister{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			out, err := l.list(ctx, o)
			t.note(ctx, what, err)
			return out, err
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			out, err := l.watch(ctx, o)
			t.note(ctx, what, err)
			return out, err
		},
	}
}

func (t *troubles) note(ctx context.Context, what string, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) {
		return // An informer asks in another way then.
	}
	t.mu.Lock()
	known, was := t.of[what]
	next := known
	if err != nil {
		next.why = firstLine(err.Error())
		if !was {
			next.since = time.Now()
		}
		t.of[what] = next
	} else {
		delete(t.of, what)
	}
	t.mu.Unlock()
	if was != (err != nil) || next != known {
		t.changed()
	}
}

// text says what is wrong; nothing if all is well.
func (t *troubles) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.of) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(t.of))
	oldest := t.of[names[0]]
	for _, name := range names[1:] {
		if t.of[name].since.Before(oldest.since) {
			oldest = t.of[name]
		}
	}
	return fmt.Sprintf(
		"Nothing new is known of %s since %s UTC: %s",
		strings.Join(names, ", "), oldest.since.UTC().Format(time.TimeOnly), oldest.why,
	)
}
