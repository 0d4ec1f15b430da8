package hotstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"
)

// byMessage takes a pod as renewed when only the message of its status differs.
func byMessage(keep time.Duration) func(*Config) {
	return func(c *Config) {
		c.Renewal = &Renewal{Keep: keep, Renewable: func(now runtime.Object) bool { return now.(*example.Pod).Name != "never" }, Renewed: func(now, next runtime.Object) runtime.Object {
			before, after := now.(*example.Pod), next.(*example.Pod)
			same := *after
			same.Status.Message, same.ResourceVersion = before.Status.Message, before.ResourceVersion
			switch {
			case before.DeletionTimestamp != nil || fmt.Sprint(same) != fmt.Sprint(*before):
				return nil
			case before.Status.Message == after.Status.Message:
				return before
			}
			out := *before
			out.Status.Message = after.Status.Message
			return &out
		}}
	}
}

var errConflict = errors.New("the object has been modified")

// put writes a message, as one who read that version; "" is whichever there is.
func (f *fixture) put(name, message, version string) (*example.Pod, error) {
	if f.short != nil && f.short() {
		next := &example.Pod{}
		if err := f.Get(context.Background(), "/pods/ns/"+name, storage.GetOptions{}, next); err != nil {
			return nil, err
		}
		next.Status.Message, next.ResourceVersion = message, cmp.Or(version, next.ResourceVersion)
		if renewed := f.Renew("/pods/ns/"+name, next); renewed != nil {
			return renewed.(*example.Pod), nil
		}
	}
	out := &example.Pod{}
	err := f.GuaranteedUpdate(context.Background(), "/pods/ns/"+name, out, false, nil, func(obj runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		pod := obj.(*example.Pod)
		if told := strconv.FormatUint(meta.ResourceVersion, 10); told != pod.ResourceVersion {
			return nil, nil, fmt.Errorf("a writer gets version %s and is told that it is %s", pod.ResourceVersion, told)
		}
		if version != "" && pod.ResourceVersion != version {
			return nil, nil, errConflict
		}
		pod.Status.Message = message
		return pod, nil, nil
	}, nil)
	return out, err
}

func (f *fixture) mustPut(t *testing.T, name, message, version string) *example.Pod {
	t.Helper()
	out, err := f.put(name, message, version)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// shows waits until the cache has come as far as the answer of a write.
func (f *fixture) shows(t *testing.T, pod *example.Pod) {
	t.Helper()
	revision, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.waitUntil(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) stored(t *testing.T, name string) *example.Pod {
	t.Helper()
	out := &example.Pod{}
	if err := f.raw.Get(t.Context(), "/pods/ns/"+name, storage.GetOptions{}, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRenewalsStayInMemory(t *testing.T) {
	for name, short := range map[string]bool{"as any write": false, "the short way": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, byMessage(time.Hour))
			f.short = func() bool { return short }
			renewalsStayInMemory(t, f)
		})
	}
}

func renewalsStayInMemory(t *testing.T, f *fixture) {
	t.Helper()
	created := f.create(t, "p", "")
	f.create(t, "q", "")
	f.shows(t, f.label(t, "q", "2"))
	outside, inside := f.watchAll(t.Context(), t, created.ResourceVersion), f.watchAll(Inside(t.Context()), t, "0")
	next(t, outside)
	next(t, outside) // the creation of q, and its label
	next(t, inside)
	next(t, inside)

	one := f.mustPut(t, "p", "one", created.ResourceVersion)
	f.shows(t, f.label(t, "q", "3"))
	two := f.mustPut(t, "p", "two", one.ResourceVersion)
	if got := f.stored(t, "p"); got.Status.Message != "" || got.ResourceVersion != created.ResourceVersion {
		t.Errorf("the database holds %q of version %s, want what was created", got.Status.Message, got.ResourceVersion)
	}
	for who, w := range map[string]watch.Interface{"outside": outside, "inside": inside} {
		for i, want := range []*example.Pod{one, two} {
			if i > 0 {
				next(t, w) // the label of q
			}
			e := next(t, w)
			if pod, ok := podOf(e); !ok || e.Type != watch.Modified || pod.Status.Message != want.Status.Message || pod.ResourceVersion != want.ResourceVersion {
				t.Errorf("a watch %s is told of %v, want the message %q of version %s", who, e, want.Status.Message, want.ResourceVersion)
			}
		}
	}
	for way, options := range map[string]storage.ListOptions{
		"newest": {}, "any": {ResourceVersion: "0"}, "at least": {ResourceVersion: two.ResourceVersion},
		"a page": {Predicate: storage.SelectionPredicate{Label: storage.Everything.Label, Field: storage.Everything.Field, Limit: 1}},
	} {
		if options.Predicate.Label == nil {
			options.Predicate = storage.Everything
		}
		options.Recursive = true
		list := &example.PodList{}
		if err := f.GetList(t.Context(), "/pods/", options, list); err != nil {
			t.Fatal(err)
		}
		if got := list.Items[0]; got.Status.Message != "two" || got.ResourceVersion != two.ResourceVersion {
			t.Errorf("a list (%s) shows %q of version %s", way, got.Status.Message, got.ResourceVersion)
		}
		if older(t, list.ResourceVersion, two.ResourceVersion) {
			t.Errorf("a list (%s) has version %s, older than %s of what is in it", way, list.ResourceVersion, two.ResourceVersion)
		}
	}
	for _, version := range []string{"", "0", two.ResourceVersion} {
		got := &example.Pod{}
		if err := f.Get(t.Context(), "/pods/ns/p", storage.GetOptions{ResourceVersion: version}, got); err != nil {
			t.Fatal(err)
		}
		if got.Status.Message != "two" {
			t.Errorf("a read of version %q shows %q", version, got.Status.Message)
		}
	}
	if again := f.mustPut(t, "p", "two", ""); again.ResourceVersion != two.ResourceVersion {
		t.Errorf("a write that changes nothing answers version %s, want %s", again.ResourceVersion, two.ResourceVersion)
	}
	list := &example.PodList{}
	if err := (stored{f.Cache}).GetList(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, list); err != nil {
		t.Fatal(err)
	}
	if got := list.Items[0].ResourceVersion; got != created.ResourceVersion {
		t.Errorf("the check of caches sees version %s, the database has %s", got, created.ResourceVersion)
	}
}

func podOf(e watch.Event) (*example.Pod, bool) {
	if shared, ok := e.Object.(runtime.CacheableObject); ok {
		e.Object = shared.GetObject()
	}
	pod, ok := e.Object.(*example.Pod)
	return pod, ok
}

func older(t *testing.T, a, b string) bool {
	t.Helper()
	left, err := strconv.ParseUint(a, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	right, err := strconv.ParseUint(b, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return left < right
}

// TestOtherWritesCarryRenewalsAlong: what else is written begins with the renewed object.
func TestOtherWritesCarryRenewalsAlong(t *testing.T) {
	f := newFixture(t, byMessage(time.Hour))
	created := f.create(t, "p", "")
	f.create(t, "q", "") // so that the versions of the two writes below differ
	f.shows(t, f.label(t, "q", "2"))
	renewed := f.mustPut(t, "p", "one", "")
	if renewed.ResourceVersion == created.ResourceVersion {
		t.Fatal("the renewal has the version of the creation; the test needs another one")
	}
	if _, err := f.put("p", "two", created.ResourceVersion); !errors.Is(err, errConflict) {
		t.Errorf("who has read the object before its renewal writes with %v, want a conflict", err)
	}
	if _, err := f.put("p", "one", renewed.ResourceVersion); err != nil {
		t.Error(err)
	}
	labelled := f.label(t, "p", "2")
	if got := f.stored(t, "p"); got.Status.Message != "one" || got.Labels["a"] != "2" || got.ResourceVersion != labelled.ResourceVersion {
		t.Errorf("the database holds %v", got)
	}
	f.shows(t, labelled)
	f.create(t, "r", "")
	f.shows(t, f.label(t, "r", "2"))
	renewed = f.mustPut(t, "p", "three", labelled.ResourceVersion)

	remove := func(version string) error {
		return f.Delete(t.Context(), "/pods/ns/p", &example.Pod{}, &storage.Preconditions{ResourceVersion: ptr.To(version)},
			storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	}
	if err := remove(labelled.ResourceVersion); !storage.IsInvalidObj(err) {
		t.Errorf("a removal on condition of an older version: %v", err)
	}
	w := f.watchAll(t.Context(), t, renewed.ResourceVersion)
	if err := remove(renewed.ResourceVersion); err != nil {
		t.Errorf("a removal on condition of the renewed version: %v", err)
	}
	if e := next(t, w); e.Type != watch.Modified { // who was at this version may not know the renewal
		t.Errorf("a watch from the renewal is told of %v first", e)
	}
	if e := next(t, w); e.Type != watch.Deleted {
		t.Errorf("a watch is told of %v", e)
	} else if pod, _ := podOf(e); pod.Status.Message != "three" {
		t.Errorf("what is told to be deleted has the message %q", pod.Status.Message)
	}
	if _, err := f.put("p", "four", ""); !storage.IsNotFound(err) {
		t.Errorf("a renewal of what was deleted: %v", err)
	}
}

// TestRenewalsReachTheDatabaseAtLast: what the database holds does not become too old.
func TestRenewalsReachTheDatabaseAtLast(t *testing.T) {
	f := newFixture(t, byMessage(time.Nanosecond))
	f.create(t, "p", "")
	written := f.mustPut(t, "p", "one", "")
	if got := f.stored(t, "p"); got.Status.Message != "one" || got.ResourceVersion != written.ResourceVersion {
		t.Errorf("the database holds %q", got.Status.Message)
	}
	r := &Renewal{Keep: time.Minute}
	least, most := time.Hour, time.Duration(0)
	for i := range 1000 {
		keep := r.keep(fmt.Sprintf("/pods/ns/%d", i))
		least, most = min(least, keep), max(most, keep)
	}
	if least < 30*time.Second || most > time.Minute || most-least < 25*time.Second {
		t.Errorf("objects are kept between %v and %v, want all of 30 s to 60 s", least, most)
	}
}

// TestAfterACrash: what was in memory only is as if it had not been; who wrote it is told so.
func TestAfterACrash(t *testing.T) {
	f := newFixture(t, byMessage(time.Hour))
	f.create(t, "p", "")
	f.create(t, "q", "")
	f.shows(t, f.label(t, "q", "2"))
	renewed := f.mustPut(t, "p", "one", "")
	again, err := New(f.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Stop)
	waitReady(t, again)
	g := &fixture{Cache: again, server: f.server, raw: f.raw}
	if _, err := g.put("p", "two", renewed.ResourceVersion); !errors.Is(err, errConflict) {
		t.Errorf("a write by the version of before the crash: %v, want a conflict", err)
	}
	got := g.mustPut(t, "p", "two", g.stored(t, "p").ResourceVersion)
	if got.Status.Message != "two" {
		t.Errorf("after it was read again the message is %q", got.Status.Message)
	}
}

// TestWritesUnderWayKeepRenewalsOut: nothing is renewed that is not the newest there is.
func TestWritesUnderWayKeepRenewalsOut(t *testing.T) {
	f := newFixture(t, byMessage(time.Hour))
	f.create(t, "p", "")
	f.shows(t, f.label(t, "p", "2"))
	done := f.writing("/pods/ns/p", &example.Pod{})
	first := f.mustPut(t, "p", "one", "")
	if got := f.stored(t, "p").Status.Message; got != "one" {
		t.Errorf("while a write is under way the database holds %q", got)
	}
	f.shows(t, first)
	done()
	ahead := &example.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1000000"}}
	f.writing("/pods/ns/p", ahead)()
	f.mustPut(t, "p", "two", "")
	if got := f.stored(t, "p").Status.Message; got != "two" {
		t.Errorf("after a write that the cache does not show the database holds %q", got)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes["/pods/ns/p"].until = 0
	f.settled("/pods/ns/p", f.revision)
	if len(f.writes) != 0 {
		t.Errorf("it remembers %d writes that it shows", len(f.writes))
	}
}

// TestSlowWatchOfRenewalsIsEnded: what nobody reads does not fill the memory.
func TestSlowWatchOfRenewalsIsEnded(t *testing.T) {
	f := newFixture(t, func(c *Config) { byMessage(time.Hour)(c); c.Slack = 10 })
	f.shows(t, f.create(t, "p", ""))
	slow := f.watchAll(t.Context(), t, "0")
	for i := range resultRoom + 100 {
		f.mustPut(t, "p", strconv.Itoa(i), "")
	}
	for deadline := time.After(time.Minute); ; {
		select {
		case _, ok := <-slow.ResultChan():
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("a watch that read nothing goes on")
		}
	}
}

// TestRenewalsAmongOtherWrites: whatever is acknowledged is seen by who reads after it, and
// no write that knew an older version is taken.
func TestRenewalsAmongOtherWrites(t *testing.T) {
	f := newFixture(t, byMessage(20*time.Millisecond))
	f.short = func() bool { return rand.IntN(2) == 0 }
	const names, rounds = 3, 150
	for i := range names {
		f.shows(t, f.create(t, strconv.Itoa(i), ""))
	}
	var all sync.WaitGroup
	for i := range names {
		name := strconv.Itoa(i)
		var mu sync.Mutex // makes the writes to one object follow each other, so that each knows what it must find
		message, label, version := "", "1", ""
		for worker := range 3 {
			chance := rand.New(rand.NewPCG(uint64(i), uint64(worker)))
			all.Go(func() {
				for round := range rounds {
					mu.Lock()
					switch chance.IntN(4) {
					case 0:
						label = fmt.Sprint(worker, round)
						pod := f.label(t, name, label)
						version = pod.ResourceVersion
						if pod.Status.Message != message {
							t.Errorf("a label was put on %q, want %q", pod.Status.Message, message)
						}
					case 1:
						if _, err := f.put(name, "wrong", "1"); !errors.Is(err, errConflict) {
							t.Errorf("a write by an old version: %v", err)
						}
					default:
						message = fmt.Sprint(worker, "-", round)
						pod, err := f.put(name, message, version)
						if err != nil || pod.Labels["a"] != label || pod.ResourceVersion == version {
							t.Errorf("a renewal of version %s: version %s, %v, %v", version, pod.ResourceVersion, pod.Labels, err)
						}
						version = pod.ResourceVersion
					}
					got := &example.Pod{}
					if err := f.Get(context.Background(), "/pods/ns/"+name, storage.GetOptions{}, got); err != nil || got.Status.Message != message || got.Labels["a"] != label {
						t.Errorf("a read shows %q %v (%v), want %q %q", got.Status.Message, got.Labels, err, message, label)
					}
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	if f.writesUnderWay() != 0 {
		t.Errorf("%d writes are remembered", f.writesUnderWay())
	}
}

// TestRenewalsAtOnce: of those who renew at the same time nobody overwrites another unseen.
func TestRenewalsAtOnce(t *testing.T) {
	f := newFixture(t, byMessage(time.Hour))
	f.shows(t, f.create(t, "p", ""))
	const workers, each = 8, 200
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range each {
				err := f.GuaranteedUpdate(context.Background(), "/pods/ns/p", &example.Pod{}, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
					pod := obj.(*example.Pod)
					n, _ := strconv.Atoi(pod.Status.Message)
					pod.Status.Message = strconv.Itoa(n + 1)
					return pod, nil
				}), nil)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got := &example.Pod{}
	if err := f.Get(t.Context(), "/pods/ns/p", storage.GetOptions{}, got); err != nil || got.Status.Message != strconv.Itoa(workers*each) {
		t.Errorf("%d renewals at once are counted as %s (%v)", workers*each, got.Status.Message, err)
	}
}

func (f *fixture) writesUnderWay() int {
	revision, err := f.GetCurrentResourceVersion(context.Background())
	if err != nil {
		return -1
	}
	if err := f.waitUntil(context.Background(), revision); err != nil {
		return -1
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.writes)
}

// TestWhatIsNeverRenewedIsLookedAtOnce: who writes it is asked once what becomes of it.
func TestWhatIsNeverRenewedIsLookedAtOnce(t *testing.T) {
	f := newFixture(t, byMessage(time.Hour))
	f.shows(t, f.create(t, "never", ""))
	asked := 0
	err := f.GuaranteedUpdate(t.Context(), "/pods/ns/never", &example.Pod{}, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		asked++
		obj.(*example.Pod).Status.Message = "one"
		return obj, nil
	}), nil)
	if err != nil || asked != 1 || f.stored(t, "never").Status.Message != "one" {
		t.Errorf("it was asked %d times (%v), and the database holds %q", asked, err, f.stored(t, "never").Status.Message)
	}
}

// TestRenewalThatIsRefused: an update that fails is answered as by the database.
func TestRenewalThatIsRefused(t *testing.T) {
	f := newFixture(t, byMessage(time.Hour))
	f.shows(t, f.create(t, "p", ""))
	refused := apierrors.NewForbidden(f.GroupResource, "p", errors.New("no"))
	err := f.GuaranteedUpdate(t.Context(), "/pods/ns/p", &example.Pod{}, false, nil, storage.SimpleUpdate(func(runtime.Object) (runtime.Object, error) {
		return nil, refused
	}), nil)
	if !errors.Is(err, refused) {
		t.Errorf("it is answered %v", err)
	}
	err = f.GuaranteedUpdate(t.Context(), "/pods/ns/p", &example.Pod{}, false, &storage.Preconditions{UID: ptr.To(types.UID("other"))}, storage.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) {
		return o, nil
	}), nil)
	if !storage.IsInvalidObj(err) {
		t.Errorf("another identity is answered %v", err)
	}
}

// TestNoShortWay: what is more than a renewal is not carried out as one.
func TestNoShortWay(t *testing.T) {
	f := newFixture(t, byMessage(time.Hour))
	f.create(t, "p", "")
	f.create(t, "never", "")
	f.shows(t, f.label(t, "p", "1"))
	f.shows(t, f.create(t, "q", "")) // The cache has come beyond the version of p.
	known := &example.Pod{}
	if err := f.Get(t.Context(), "/pods/ns/p", storage.GetOptions{}, known); err != nil {
		t.Fatal(err)
	}
	before := known.DeepCopy()
	for name, c := range map[string]struct {
		of     string
		change func(*example.Pod)
	}{
		"a label":          {"p", func(p *example.Pod) { p.Labels = map[string]string{"a": "b"} }},
		"an older version": {"p", func(p *example.Pod) { p.ResourceVersion = "1" }},
		"a later version":  {"p", func(p *example.Pod) { p.ResourceVersion = "1000000" }},
		"garbage":          {"p", func(p *example.Pod) { p.ResourceVersion = "x" }},
		"no version":       {"p", func(p *example.Pod) { p.ResourceVersion = "" }},
		"another object":   {"p", func(p *example.Pod) { p.UID = "other" }},
		"nobody":           {"nobody", func(*example.Pod) {}},
		"never":            {"never", func(*example.Pod) {}},
	} {
		next := known.DeepCopy()
		next.Status.Message = "renewed"
		c.change(next)
		if renewed := f.Renew("/pods/ns/"+c.of, next); renewed != nil {
			t.Errorf("%s: it is renewed: %v", name, renewed)
		}
	}
	known.Status.Message = "renewed"
	renewed := f.Renew("/pods/ns/p", known)
	if renewed == nil {
		t.Fatal("nothing is ever renewed")
	}
	renewed.(*example.Pod).Status.Message, renewed.(*example.Pod).ResourceVersion = "mine", "1"
	got := &example.Pod{}
	if err := f.Get(t.Context(), "/pods/ns/p", storage.GetOptions{}, got); err != nil || got.Status.Message != "renewed" || got.ResourceVersion == "1" {
		t.Errorf("who changes the answer changes what is held: %v, %v", got, err)
	}
	if err := f.Get(t.Context(), "/pods/ns/p", storage.GetOptions{ResourceVersion: before.ResourceVersion}, got); err != nil || got.Labels["a"] != "1" {
		t.Errorf("what is held is %v (%v)", got, err)
	}
	f.Renewal = nil
	if f.Renew("/pods/ns/p", known) != nil {
		t.Error("a kind without renewals is renewed")
	}
}

// What was renewed in memory is in every page of a list, and in a list of a version, and can be written by what they show.
func TestFurtherPagesShowRenewals(t *testing.T) {
	f := newFixture(t, byMessage(time.Hour))
	names := []string{"p1", "p2", "p3", "p4"}
	for _, n := range append(names, "q") {
		f.create(t, n, "")
	}
	f.shows(t, f.label(t, "q", "2"))
	for _, n := range names {
		f.mustPut(t, n, "alive", "")
	}
	list := func(change func(*storage.ListOptions)) *example.PodList {
		t.Helper()
		options, out := storage.ListOptions{Recursive: true, Predicate: storage.Everything}, &example.PodList{}
		change(&options)
		if err := f.GetList(t.Context(), "/pods/", options, out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := list(func(o *storage.ListOptions) { o.Predicate.Limit = 2 })
	second := list(func(o *storage.ListOptions) { o.Predicate.Limit, o.Predicate.Continue = 2, first.Continue })
	exact := list(func(o *storage.ListOptions) {
		o.ResourceVersion, o.ResourceVersionMatch = first.ResourceVersion, metav1.ResourceVersionMatchExact
	})
	for what, pods := range map[string][]example.Pod{"further page": second.Items, "list of a version": exact.Items[:4]} {
		for i := range pods {
			if pods[i].Status.Message != "alive" || pods[i].ResourceVersion != first.Items[0].ResourceVersion {
				t.Errorf("%s: %s of version %s says %q", what, pods[i].Name, pods[i].ResourceVersion, pods[i].Status.Message)
			}
		}
	}
	if len(second.Items) != 2 {
		t.Fatalf("the further page has %d pods", len(second.Items))
	}
	f.mustPut(t, second.Items[0].Name, "written by the page", second.Items[0].ResourceVersion)
}
