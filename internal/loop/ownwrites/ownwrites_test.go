package ownwrites

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
)

// pod is UID@VERSION, with ! if it is being deleted.
func pod(text string) *corev1.Pod {
	text, going := strings.CutSuffix(text, "!")
	uid, version, _ := strings.Cut(text, "@")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: version}}
	if going {
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	return p
}

// overlay shows the log's view of what the cache shows.
func overlay(l *Log[*corev1.Pod], cached ...string) string {
	var pods []*corev1.Pod
	for _, c := range cached {
		pods = append(pods, pod(c))
	}
	var out []string
	for _, p := range l.Overlay("owner", pods) {
		text := string(p.UID) + "@" + p.ResourceVersion
		if p.DeletionTimestamp != nil {
			text += "!"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestOverlay(t *testing.T) {
	type log = *Log[*corev1.Pod]
	for _, c := range []struct {
		name   string
		write  func(l log, c *testingclock.FakePassiveClock)
		cached []string
		want   string
		// What the cache shows later, and what the log makes of it then.
		later []string
		then  string
	}{
		{"nothing was written", func(log, *testingclock.FakePassiveClock) {}, []string{"a@1"}, "a@1", nil, ""},
		{"created, and not there yet", func(l log, _ *testingclock.FakePassiveClock) { l.Created("owner", pod("b@5")) }, []string{"a@1"}, "a@1 b@5", []string{"a@1"}, "a@1 b@5"},
		{"created, and there", func(l log, _ *testingclock.FakePassiveClock) { l.Created("owner", pod("b@5")) }, []string{"a@1", "b@5"}, "a@1 b@5", []string{"a@1"}, "a@1"},
		{"created for another owner", func(l log, _ *testingclock.FakePassiveClock) { l.Created("other", pod("b@5")) }, []string{"a@1"}, "a@1", nil, ""},
		{"updated, and the cache is behind", func(l log, _ *testingclock.FakePassiveClock) { l.Updated("owner", pod("a@5")) }, []string{"a@1"}, "a@5", []string{"a@6"}, "a@6"},
		{"updated, and gone since", func(l log, _ *testingclock.FakePassiveClock) { l.Updated("owner", pod("a@5")) }, nil, "", []string{"a@1"}, "a@1"},
		{"created and updated", func(l log, _ *testingclock.FakePassiveClock) {
			l.Created("owner", pod("b@5"))
			l.Updated("owner", pod("b@6"))
		}, nil, "b@6", []string{"b@5"}, "b@6"},
		{"deleted, and the cache is behind", func(l log, _ *testingclock.FakePassiveClock) { l.Deleted("owner", pod("a@1!")) }, []string{"a@1"}, "a@1!", []string{"a@1"}, "a@1!"},
		{"deleted, and the cache knows", func(l log, _ *testingclock.FakePassiveClock) { l.Deleted("owner", pod("a@1!")) }, []string{"a@2!"}, "a@2!", nil, ""},
		{"deleted and gone", func(l log, _ *testingclock.FakePassiveClock) { l.Deleted("owner", pod("a@1!")) }, nil, "", nil, ""},
		{"created and deleted before the cache knew", func(l log, _ *testingclock.FakePassiveClock) {
			l.Created("owner", pod("b@5"))
			l.Deleted("owner", pod("b@5!"))
		}, nil, "b@5!", []string{"b@5"}, "b@5!"},
		{"the news is never coming", func(l log, c *testingclock.FakePassiveClock) {
			l.Created("owner", pod("b@5"))
			c.SetTime(c.Now().Add(forget + time.Second))
		}, nil, "", nil, ""},
		{"gone", func(l log, _ *testingclock.FakePassiveClock) {
			l.Created("owner", pod("b@5"))
			l.Gone("b")
		}, nil, "", nil, ""},
		{"gone before the answer came", func(l log, _ *testingclock.FakePassiveClock) {
			end := l.Begin()
			l.Gone("b")
			l.Created("owner", pod("b@5"))
			end()
		}, nil, "", nil, ""},
		{"another went before", func(l log, _ *testingclock.FakePassiveClock) {
			l.Begin()()
			l.Gone("b") // nobody was writing: it cannot be ours
			defer l.Begin()()
			l.Created("owner", pod("b@5"))
		}, nil, "b@5", nil, "b@5"},
		{"the owner is gone", func(l log, _ *testingclock.FakePassiveClock) {
			l.Created("owner", pod("b@5"))
			l.Forget("owner")
		}, nil, "", nil, ""},
	} {
		clock := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
		l := New[*corev1.Pod](clock)
		c.write(l, clock)
		if got := overlay(l, c.cached...); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if got := overlay(l, c.later...); got != c.then {
			t.Errorf("%s, later: %q, want %q", c.name, got, c.then)
		}
	}
}

func TestNothingIsKept(t *testing.T) {
	l := New[*corev1.Pod](testingclock.NewFakePassiveClock(time.Unix(1000, 0)))
	end := l.Begin()
	l.Created("owner", pod("a@1"))
	l.Created("owner", pod("b@1"))
	l.Created("other", pod("c@1"))
	l.Gone("x")
	l.Gone("a")
	overlay(l, "b@1")
	l.Forget("other")
	end()
	if len(l.owners)+len(l.holder)+len(l.gone) != 0 {
		t.Errorf("left over: owners %v, holders %v, gone %v", l.owners, l.holder, l.gone)
	}
}

// TestOverlappingWritesKeepNothing has a write under way at every moment, but no write for long.
func TestOverlappingWritesKeepNothing(t *testing.T) {
	l := New[*corev1.Pod](testingclock.NewFakePassiveClock(time.Unix(1000, 0)))
	end := l.Begin()
	for i := range 1000 {
		next := l.Begin()
		l.Gone(types.UID(strconv.Itoa(i)))
		end()
		end = next
		if len(l.gone) > 2 {
			t.Fatalf("%d objects that are gone are kept with 1 write under way", len(l.gone))
		}
	}
	end()
	if len(l.gone)+len(l.leaving)+len(l.ended) != 0 {
		t.Errorf("left over: gone %v, leaving %v, ended %v", l.gone, l.leaving, l.ended)
	}
}

// TestAnotherWriteEndsFirst: a short write must not make the log forget what a longer one has yet to be told.
func TestAnotherWriteEndsFirst(t *testing.T) {
	for _, other := range []string{"began before", "began after"} {
		l := New[*corev1.Pod](testingclock.NewFakePassiveClock(time.Unix(1000, 0)))
		short, long := l.Begin(), l.Begin()
		if other == "began after" {
			short, long = long, short
		}
		l.Gone("b")
		later := l.Begin()
		l.Gone("b") // told twice
		short()
		l.Created("owner", pod("b@5"))
		long()
		l.Created("owner", pod("b@5"))
		later()
		if got := overlay(l); got != "" {
			t.Errorf("the other %s: the log shows %q, which is gone", other, got)
		}
		if len(l.gone)+len(l.leaving)+len(l.ended) != 0 {
			t.Errorf("the other %s: left over: gone %v, leaving %v, ended %v", other, l.gone, l.leaving, l.ended)
		}
	}
}
