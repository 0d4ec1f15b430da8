package objects

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// classPatience is how long a pod waits for what the API says of its runtime class.
const classPatience = 10 * time.Second

// GetClass reads a RuntimeClass.
type GetClass func(ctx context.Context, name string, options metav1.GetOptions) (*nodev1.RuntimeClass, error)

// RuntimeClasses finds out how the container runtime calls the classes that pods name. Few pods name one, so they are
// read one by one when a sandbox is made.
type RuntimeClasses struct {
	get GetClass

	mu sync.Mutex
	// known are the handlers of classes that were read. A class keeps its handler, so they are good while the API does
	// not answer.
	known map[string]string
}

// NewRuntimeClasses knows these handlers, by class, from an earlier run.
func NewRuntimeClasses(get GetClass, known map[string]string) *RuntimeClasses {
	r := &RuntimeClasses{get: get, known: map[string]string{}}
	maps.Copy(r.known, known)
	return r
}

// All are the handlers that are known, by class.
func (r *RuntimeClasses) All() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.known)
}

// Handler is how the runtime calls a class.
func (r *RuntimeClasses) Handler(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, classPatience)
	defer cancel()
	class, err := r.get(ctx, name, metav1.GetOptions{})
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.known[name] = class.Handler
		return class.Handler, nil
	case apierrors.IsNotFound(err):
		delete(r.known, name)
		return "", err
	}
	if handler, ok := r.known[name]; ok && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown { // nobody answered
		return handler, nil
	}
	return "", fmt.Errorf("failed to lookup RuntimeClass %s: %w", name, err)
}
