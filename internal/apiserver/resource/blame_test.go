package resource

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apiserver/pkg/registry/rest"
)

// update computes an update as f does and returns what BlameRequest makes of it.
func update(ctx context.Context, f func() (runtime.Object, error)) error {
	info := rest.DefaultUpdatedObjectInfo(nil, func(context.Context, runtime.Object, runtime.Object) (runtime.Object, error) { return f() })
	_, err := BlameRequest(info).UpdatedObject(ctx, &corev1.ConfigMap{})
	return err
}

func TestUpdatesThatCannotBeComputedAreBadRequests(t *testing.T) {
	patched := func(original, patch string) func() (runtime.Object, error) {
		return func() (runtime.Object, error) {
			_, err := strategicpatch.StrategicMergePatch([]byte(original), []byte(patch), &corev1.Pod{})
			return &corev1.Pod{}, err
		}
	}
	for name, c := range map[string]struct {
		update func() (runtime.Object, error)
		code   int32
		want   string
	}{
		"an error without a status": {func() (runtime.Object, error) { return nil, errors.New("no such field") }, http.StatusBadRequest, "no such field"},
		"an error with a status": {func() (runtime.Object, error) {
			return nil, apierrors.NewConflict(corev1.Resource("pods"), "p", errors.New("x"))
		}, http.StatusConflict, ""},
		"a version that is none": {func() (runtime.Object, error) {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "x"}}, nil
		}, http.StatusBadRequest, `metadata.resourceVersion: Invalid value: "x"`},
		"a directive with maps in it": {patched(`{"spec":{"volumes":[{"name":"a"}]}}`, `{"spec":{"volumes":[{"name":"a","$retainKeys":[{"a":"b"}]}]}}`),
			http.StatusBadRequest, "unhashable"},
		"a merge key that is a map": {patched(`{"spec":{"containers":[{"name":{"a":"b"}}]}}`, `{"spec":{"containers":[{"name":{"a":"b"}}]}}`),
			http.StatusBadRequest, "uncomparable"},
		"a good one": {func() (runtime.Object, error) { return &corev1.ConfigMap{}, nil }, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := update(context.Background(), c.update)
			var code int32
			if status := apierrors.APIStatus(nil); errors.As(err, &status) {
				code = status.Status().Code
			} else if err != nil {
				t.Fatalf("%v has no status", err)
			}
			if code != c.code || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %d %v, want %d %q", code, err, c.code, c.want)
			}
		})
	}
}

func TestNobodyIsBlamedForAnEndedRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := update(ctx, func() (runtime.Object, error) { return nil, ctx.Err() }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want what ended the request", err)
	}
}

func TestOtherPanicsGoOn(t *testing.T) {
	defer func() {
		if p := recover(); p != "ours" {
			t.Errorf("recovered %v, want what panicked", p)
		}
	}()
	_ = update(context.Background(), func() (runtime.Object, error) { panic("ours") })
}
