package copies

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/content"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
)

// A right that is taken away, and given back later, lets what is content be read again.
func TestARightThatComesBack(t *testing.T) {
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "conf"}})
	var forbidden atomic.Bool
	watches := make(chan *watch.FakeWatcher, 100)
	refusal := apierrors.NewForbidden(corev1.Resource("configmaps"), "", nil)
	client.PrependReactor("list", "configmaps", func(k8stesting.Action) (bool, runtime.Object, error) {
		if forbidden.Load() {
			return true, nil, refusal
		}
		return false, nil, nil
	})
	client.PrependWatchReactor("configmaps", func(a k8stesting.Action) (bool, watch.Interface, error) {
		w, is := a.(k8stesting.WatchActionImpl)
		switch {
		case forbidden.Load():
			return true, nil, refusal
		case is && w.ListOptions.SendInitialEvents != nil: // as older servers answer
			return true, nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
		}
		opened := watch.NewFake()
		watches <- opened
		return true, opened, nil
	})
	told := make(chan contents.Sight, 1000)
	Access{Client: client}.Follow(t.Context(), "ns", content.ConfigMap, toolscache.ResourceEventHandlerFuncs{},
		func(s contents.Sight) { told <- s })
	wait := func(what string, is func(contents.Sight) bool) {
		t.Helper()
		for end := time.After(20 * time.Second); ; {
			select {
			case s := <-told:
				if is(s) {
					return
				}
			case <-end:
				t.Fatalf("it is not told that %s", what)
			}
		}
	}
	read := func(s contents.Sight) bool { return s.Read && s.Why == "" }
	wait("it is read", read)
	forbidden.Store(true)
	(<-watches).Stop()
	wait("it cannot be read", func(s contents.Sight) bool {
		return !s.Read && strings.Contains(s.Why, "everynode:content")
	})
	forbidden.Store(false)
	wait("it is read again", read)
}
