package storages

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// loading is a storage whose cache is loaded after a while, and whose lists end with an error then, or well.
type loading struct {
	storage.Interface
	until time.Time
	then  error
}

func (s loading) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	if time.Now().Before(s.until) {
		return apierrors.NewTooManyRequests("storage is (re)initializing", 1)
	}
	return s.then
}

// A list of custom objects waits for a cache that is being loaded: for a while, and for nothing else.
func TestListsWaitForTheirCache(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		loads, gone time.Duration
		then        error
		want        func(error) bool
		takes       time.Duration // at most
	}{
		"loaded": {0, time.Hour, nil, func(err error) bool { return err == nil }, 0},
		"loaded soon": {time.Second, time.Hour, nil, func(err error) bool { return err == nil },
			time.Second + loadedCheck},
		"broken": {0, time.Hour, broken, func(err error) bool { return errors.Is(err, broken) }, 0},
		"soon broken": {time.Second, time.Hour, broken, func(err error) bool { return errors.Is(err, broken) },
			time.Second + loadedCheck},
		"never":            {time.Hour, time.Hour, nil, apierrors.IsTooManyRequests, loadedWithin + loadedCheck},
		"the asker leaves": {time.Hour, time.Second, nil, apierrors.IsTooManyRequests, time.Second + loadedCheck},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), test.gone)
				defer cancel()
				s := awaitedStorage{loading{until: begin.Add(test.loads), then: test.then}}
				if err := s.GetList(ctx, "/k", storage.ListOptions{}, nil); !test.want(err) {
					t.Errorf("the answer is %v", err)
				}
				if took := time.Since(begin); took > test.takes {
					t.Errorf("it took %s, want no more than %s", took, test.takes)
				}
			})
		})
	}
}
