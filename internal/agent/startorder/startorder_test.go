package startorder_test

import (
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/startorder"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// pod is one of a group of daemons, or an ordinary one for group 0.
func pod(name string, group int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	if group > 0 {
		p.Annotations = map[string]string{nodestartup.GroupAnnotation: strconv.Itoa(group)}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: new(true)}}
	}
	return p
}

// startable are those of the names that may start.
func startable(o *startorder.Order, at time.Duration, names ...string) string {
	var out []string
	for _, name := range names {
		if o.Holds(types.UID(name), began.Add(at)) == "" {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

// TestGroupsStartOneAfterTheOther: the daemons of a group start when those before are ready, ordinary pods last. What
// fails later holds up nobody, and what the machine needs is never held.
func TestGroupsStartOneAfterTheOther(t *testing.T) {
	critical, claims := pod("critical", 0), pod("claims", 1)
	critical.Spec.Priority = new(int32(2000001000))
	claims.OwnerReferences = nil
	bound := []*corev1.Pod{pod("web", 0), pod("log", 5), pod("cni", 2), pod("csi", 2), critical, claims}
	o := startorder.New(bound, began)
	for i, step := range []struct {
		do   func() bool
		more bool
		want string
	}{
		{func() bool { return false }, false, "cni csi critical"},
		{func() bool { return o.Ready("cni", true, began) }, false, "cni csi critical"},
		{func() bool { return o.Ready("web", true, began) }, false, "cni csi critical"},
		{func() bool { return o.Ready("web", false, began) }, false, "cni csi critical"},
		{func() bool { return o.Ready("csi", true, began) }, true, "log cni csi critical"},
		{func() bool { return o.Ready("csi", false, began) }, false, "log cni csi critical"},
		{func() bool { return o.Ready("stranger", true, began) }, false, "log cni csi critical"},
		{func() bool { return o.Drop("stranger", began) }, false, "log cni csi critical"},
		{func() bool { return o.Ready("csi", true, began) }, false, "log cni csi critical"},
		{func() bool { return o.Ready("log", true, began) }, true, "web log cni csi critical claims"},
		{func() bool { return o.Ready("log", false, began) }, false, "web log cni csi critical claims"},
	} {
		if more := step.do(); more != step.more {
			t.Errorf("step %d: more pods may start: %t, want %t", i, more, step.more)
		}
		if got := startable(&o, time.Second, "web", "log", "cni", "csi", "critical", "claims"); got != step.want {
			t.Errorf("step %d: may start: %s; want %s", i, got, step.want)
		}
	}
	if !o.Over(began) {
		t.Error("the order is not over, and all may start")
	}
}

// TestOrdinaryPodsComeBehindTheLastGroup: also behind the last group that there may be, and so do pods that only the
// cluster needs.
func TestOrdinaryPodsComeBehindTheLastGroup(t *testing.T) {
	cluster := pod("cluster", 0)
	cluster.Spec.Priority = new(int32(2000000000)) // system-cluster-critical
	bound := []*corev1.Pod{pod("web", 0), pod("log", nodestartup.MaxGroups), cluster}
	o := startorder.New(bound, began)
	if got := startable(&o, 0, "web", "log", "cluster"); got != "log" {
		t.Errorf("may start: %s; want log", got)
	}
	o.Ready("log", true, began)
	if got := startable(&o, 0, "web", "log", "cluster"); got != "web log cluster" {
		t.Errorf("may start: %s; want all", got)
	}
}

// TestHeldPodSaysForWhatItWaits: it names the group, its daemons that are not ready, and how long that may last.
func TestHeldPodSaysForWhatItWaits(t *testing.T) {
	o := startorder.New([]*corev1.Pod{pod("web", 0), pod("csi", 1), pod("cni", 1), pod("ok", 1), pod("log", 2)}, began)
	o.Ready("ok", true, began)
	want := "The machine has started again: waiting until group 1 of its daemons is ready, which lacks ns/cni, ns/csi; until 00:02:00 " +
		"UTC at most"
	if got := o.Holds("web", began); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	var many []*corev1.Pod
	for i := range 5 {
		many = append(many, pod(fmt.Sprint("d", i), 1))
	}
	o = startorder.New(append(many, pod("web", 0)), began)
	if got := o.Holds("web", began); !strings.Contains(got, "which lacks ns/d0, ns/d1, ns/d2, 2 more; until") {
		t.Errorf("of many daemons it says %q", got)
	}
}

// TestNobodyWaitsForWhatEnds: nor for longer than the bound, nor where no group is named.
func TestNobodyWaitsForWhatEnds(t *testing.T) {
	deleted, failed, done := pod("deleted", 1), pod("failed", 1), pod("done", 1)
	deleted.DeletionTimestamp = &metav1.Time{Time: began}
	failed.Status.Phase, done.Status.Phase = corev1.PodFailed, corev1.PodSucceeded
	o := startorder.New([]*corev1.Pod{deleted, failed, done, pod("cni", 2), pod("web", 0)}, began)
	if got := startable(&o, 0, "cni", "web"); got != "cni" {
		t.Errorf("may start: %s; want cni", got)
	}
	if startorder.Bound != 2*time.Minute {
		t.Errorf("pods are held for %v, and people were told two minutes", startorder.Bound)
	}
	if got := startable(&o, startorder.Bound-1, "cni", "web"); got != "cni" || o.Over(began.Add(startorder.Bound-1)) {
		t.Errorf("before the bound may start: %s; want cni", got)
	}
	if got := startable(&o, startorder.Bound, "cni", "web"); got != "cni web" || !o.Over(began.Add(startorder.Bound)) {
		t.Errorf("after the bound may start: %s; want all", got)
	}
	if !o.Drop("cni", began) || startable(&o, 0, "web") != "web" {
		t.Error("it waits for a daemon that is gone")
	}
	none := startorder.New([]*corev1.Pod{pod("web", 0), deleted}, began)
	if !none.Over(began) || startable(&none, 0, "web") != "web" {
		t.Error("an ordinary pod waits although there is no daemon of a group")
	}
}

// TestGroupWithATimeoutGoesOn: without those of its daemons that are not ready by then, each by what its own pod says, and
// never beyond the bound. The next group has its own time.
func TestGroupWithATimeoutGoesOn(t *testing.T) {
	limited := func(name string, group int, timeout string) *corev1.Pod {
		p := pod(name, group)
		p.Annotations[nodestartup.TimeoutAnnotation] = timeout
		return p
	}
	bound := []*corev1.Pod{limited("cni", 1, "10s"), limited("csi", 1, "20s"), limited("log", 2, "30s"), pod("old", 3),
		limited("new", 3, "10s"), pod("web", 0)}
	o := startorder.New(bound, began)
	for i, step := range []struct {
		at   time.Duration
		more bool
		want string
		next time.Duration // when to look again
	}{
		{0, false, "cni csi", 20 * time.Second},
		{10 * time.Second, false, "cni csi", 20 * time.Second},
		{20*time.Second - 1, false, "cni csi", 20 * time.Second},
		{20 * time.Second, true, "cni csi log", 50 * time.Second},
		{50*time.Second - 1, false, "cni csi log", 50 * time.Second},
		{51 * time.Second, true, "cni csi log old new", startorder.Bound},
		{startorder.Bound - 1, false, "cni csi log old new", startorder.Bound},
		{startorder.Bound, false, "cni csi log old new web", startorder.Bound},
	} {
		if more := o.Look(began.Add(step.at)); more != step.more {
			t.Errorf("step %d: more pods may start: %t, want %t", i, more, step.more)
		}
		if got := startable(&o, step.at, "cni", "csi", "log", "old", "new", "web"); got != step.want {
			t.Errorf("step %d: may start: %s; want %s", i, got, step.want)
		}
		if next := o.Next().Sub(began); next != step.next {
			t.Errorf("step %d: looks again after %v, want %v", i, next, step.next)
		}
	}
	o = startorder.New(bound, began)
	if got := o.Holds("web", began.Add(15*time.Second)); !strings.Contains(got, "lacks ns/csi; ") {
		t.Errorf("when it does not wait for cni any more, it says %q", got)
	}
	o.Ready("csi", true, began.Add(15*time.Second))
	if next := o.Next().Sub(began); next != 45*time.Second {
		t.Errorf("the second group began when the first did not wait any more, and ends after %v", next)
	}
	long := startorder.New([]*corev1.Pod{limited("cni", 1, "1h"), pod("web", 0)}, began)
	if long.Next() != long.Until() || startable(&long, startorder.Bound, "web") != "web" {
		t.Error("a timeout holds pods beyond the bound")
	}
}

// TestWhoLooksLikeADaemon: pods that claim groups, and never get ready, delay others by the bound at most, whatever they
// write, and nobody who runs already or comes later. Who claims a group and belongs to no DaemonSet delays nobody.
func TestWhoLooksLikeADaemon(t *testing.T) {
	critical, static := pod("critical", 0), pod("static", 0)
	critical.Spec.Priority = new(int32(2000001000))
	static.Spec.Priority = critical.Spec.Priority // its agent does not even ask
	bound := []*corev1.Pod{pod("web", 0), pod("cni", 1), critical, static}
	for group := 1; group <= nodestartup.MaxGroups; group++ {
		for _, timeout := range []string{"", "1000h", "-1000h", "soon", "1ns"} {
			forged := pod(fmt.Sprint("forged", group, timeout), group)
			forged.Annotations[nodestartup.TimeoutAnnotation] = timeout
			bound = append(bound, forged)
		}
	}
	for _, group := range []string{"0", "-1", "21", "99999999999999999999", "1 ", "one"} {
		odd := pod("odd"+group, 1)
		odd.Annotations[nodestartup.GroupAnnotation] = group
		bound = append(bound, odd)
	}
	o := startorder.New(bound, began)
	for at := time.Duration(0); at < startorder.Bound; at += time.Second {
		o.Look(began.Add(at))
		if got := startable(&o, at, "cni", "critical", "static", "late"); got != "cni critical static late" {
			t.Fatalf("at %v may start: %s", at, got)
		}
		if next := o.Next().Sub(began); next > startorder.Bound {
			t.Fatalf("at %v it looks again after %v", at, next)
		}
	}
	if got := startable(&o, startorder.Bound, "web", "odd1 ", "oddone"); got != "web odd1  oddone" {
		t.Errorf("after the bound may start: %s", got)
	}
	alone := pod("alone", 1)
	alone.OwnerReferences[0].Kind = "ReplicaSet"
	o = startorder.New([]*corev1.Pod{alone, pod("web", 0)}, began)
	if got := startable(&o, 0, "web", "alone"); got != "web alone" {
		t.Errorf("beside a pod that no DaemonSet owns may start: %s", got)
	}
}

// TestOrderOfRandomNodes: on random nodes with random news and timeouts, no pod starts before every daemon of an earlier
// group was ready together with the others of its group, or had its time; no pod that may start is held later; nothing is
// held beyond the bound.
func TestOrderOfRandomNodes(t *testing.T) {
	for seed := range int64(3000) {
		rnd := rand.New(rand.NewSource(seed))
		w := world{ready: map[string]bool{}, group: map[string]int{}, passed: map[int]bool{}, free: map[string]bool{},
			timeout: map[string]time.Duration{}, since: map[int]time.Duration{}}
		var list []*corev1.Pod
		for i := range 1 + rnd.Intn(9) {
			name := fmt.Sprint("p", i)
			w.group[name] = rnd.Intn(4)
			p := pod(name, w.group[name])
			if w.group[name] > 0 && rnd.Intn(3) == 0 {
				w.timeout[name] = time.Duration(1+rnd.Intn(60)) * time.Second
				p.Annotations[nodestartup.TimeoutAnnotation] = w.timeout[name].String()
			}
			list = append(list, p)
		}
		o := startorder.New(list, began)
		at := time.Duration(0)
		for range 30 {
			o.Look(began.Add(at))
			w.check(t, seed, &o, at)
			name := fmt.Sprint("p", rnd.Intn(len(list)))
			_, there := w.group[name]
			switch {
			case rnd.Intn(8) == 0:
				o.Drop(types.UID(name), began.Add(at))
				delete(w.group, name)
			case there && (w.free[name] || w.ready[name]):
				w.ready[name] = rnd.Intn(4) > 0
				o.Ready(types.UID(name), w.ready[name], began.Add(at))
			}
			w.check(t, seed, &o, at)
			at += time.Duration(rnd.Int63n(int64(8 * time.Second)))
		}
		w.check(t, seed, &o, startorder.Bound)
	}
}

// world is what is known of a random node without the code under test.
type world struct {
	ready   map[string]bool
	group   map[string]int
	timeout map[string]time.Duration
	passed  map[int]bool
	since   map[int]time.Duration // when the group before had passed
	free    map[string]bool
}

func (w *world) check(t *testing.T, seed int64, o *startorder.Order, at time.Duration) {
	t.Helper()
	for g := 1; g < 4; g++ {
		all := g == 1 || w.passed[g-1]
		if _, begun := w.since[g]; all && !begun {
			w.since[g] = at
		}
		for name, of := range w.group {
			late := w.timeout[name] > 0 && at >= w.since[g]+w.timeout[name]
			all = all && (of != g || w.ready[name] || late)
		}
		w.passed[g] = w.passed[g] || all
	}
	for name, g := range w.group {
		before := g - 1
		if g == 0 {
			before = 3
		}
		want := before == 0 || w.passed[before] || at >= startorder.Bound
		got := o.Holds(types.UID(name), began.Add(at)) == ""
		if got != want {
			t.Fatalf("seed %d at %v: pod %s of group %d may start: %t, want %t", seed, at, name, g, got, want)
		}
		if w.free[name] && !got {
			t.Fatalf("seed %d at %v: pod %s is held after it was let go", seed, at, name)
		}
		w.free[name] = w.free[name] || got
	}
}
