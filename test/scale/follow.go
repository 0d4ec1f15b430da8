package main

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// listed is a list of objects of one kind.
type listed interface {
	runtime.Object
	metav1.ListInterface
}

// source is where objects of one kind are listed and watched.
type source struct {
	// field and label select some of them.
	field, label string
	list         func(context.Context, metav1.ListOptions) (listed, error)
	watch        func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// follow tells see of each object that there is, and of each that changes or goes, until it
// says that what is waited for has come, or patience ends.
func (b *bench) follow(
	ctx context.Context, what string, s source, see func(object metav1.Object, gone bool) (done bool),
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.patience, fmt.Errorf("not done after %v", b.patience))
	defer cancel()
	go func() {
		select {
		case err := <-b.ended:
			b.ended <- err
			cancel()
		case <-ctx.Done():
		}
	}()
	err := s.follow(ctx, see)
	switch {
	case err == nil:
		return nil
	case len(b.ended) > 0:
		return fmt.Errorf("wait for %s: the server ended; its log is in %s", what, b.dir)
	case ctx.Err() != nil:
		return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
	}
	return fmt.Errorf("wait for %s: %w", what, err)
}

// follow ends with nil when see has what it waited for. A watch that is cut off goes on from
// where it was.
func (s source) follow(ctx context.Context, see func(object metav1.Object, gone bool) (done bool)) error {
	options := metav1.ListOptions{FieldSelector: s.field, LabelSelector: s.label}
	list, err := s.list(ctx, options)
	if err != nil {
		return err
	}
	done := false
	if err := meta.EachListItem(list, func(object runtime.Object) error {
		done = see(object.(metav1.Object), false)
		return nil
	}); err != nil || done {
		return err
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector, o.LabelSelector = s.field, s.label
			return s.watch(ctx, o)
		},
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Error:
			return apierrors.FromObject(e.Object)
		case watch.Added, watch.Modified, watch.Deleted:
			if see(e.Object.(metav1.Object), e.Type == watch.Deleted) {
				return nil
			}
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.New("the watch ended")
}
