package copies

import (
	"errors"
	"fmt"
	"slices"
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

	"github.com/everynode/everynode/internal/change/content"
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
	opened := <-watches
	forbidden.Store(true)
	opened.Stop()
	wait("it cannot be read", func(s contents.Sight) bool {
		return !s.Read && strings.Contains(s.Why, "everynode:content")
	})
	forbidden.Store(false)
	wait("it is read again", read)
}

// What cannot be read for another reason than a right is told when it lasts, and what is read again ends that.
func TestWhatCannotBeReadForLong(t *testing.T) {
	failure := apierrors.NewInternalError(errors.New("the key of the database is wrong"))
	var answer error
	now, said := time.Unix(1000, 0), []string{}
	n := &noticed{
		kind: content.Secret, now: func() time.Time { return now },
		say: func(read bool, why string) { said = append(said, fmt.Sprint(read, " ", why)) },
		of: &toolscache.ListWatch{
			ListFunc:  func(metav1.ListOptions) (runtime.Object, error) { return &corev1.SecretList{}, answer },
			WatchFunc: func(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), answer },
		},
	}
	told := "false Secrets of the namespace cannot be read: " + failure.Error()
	expired := apierrors.NewResourceExpired("too old")
	for i, c := range []struct {
		after  time.Duration
		list   bool
		answer error
		says   []string
	}{
		{0, true, failure, nil},
		{29 * time.Second, true, failure, nil},
		{time.Second, true, failure, []string{told}}, // before the first reading
		{time.Second, true, nil, nil},
		{time.Minute, false, failure, nil}, // all was well for the whole minute
		{29 * time.Second, false, failure, nil},
		{time.Second, false, expired, nil}, // which reading anew mends
		{time.Minute, false, failure, nil},
		{20 * time.Second, true, failure, nil},
		{20 * time.Second, false, failure, []string{told}},
	} {
		now, answer, said = now.Add(c.after), c.answer, nil
		if c.list {
			_, _ = n.List(metav1.ListOptions{})
		} else {
			_, _ = n.Watch(metav1.ListOptions{})
		}
		if !slices.Equal(said, c.says) {
			t.Errorf("answer %d: it says %q, want %q", i, said, c.says)
		}
	}
}
