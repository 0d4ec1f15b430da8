package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// change is what a watch tells: the version that an object has from then on, or at which it went.
type change struct {
	version int64
	name    string
	gone    bool
}

// stretch is what a client knows from a list on, by watches of which each went on where the one before ended.
type stretch struct {
	// from is the version of the list, and to the one up to which all was told.
	from, to int64
	listed   map[string]int64
	told     []change
}

// listener lists and watches the objects of one kind, each time through another server.
type listener struct {
	name string
	kind kind

	mu        sync.Mutex // guards all below
	stretches []stretch
}

// kind is how the objects of a kind are listed, watched and made.
type kind struct {
	name  string
	list  func(context.Context, kubernetes.Interface, string) (runtime.Object, error)
	watch func(context.Context, kubernetes.Interface, string, metav1.ListOptions) (watch.Interface, error)
	make  func(context.Context, kubernetes.Interface, string, metav1.ObjectMeta) (metav1.Object, error)
}

// kinds are one that is kept the library's way, and one that is kept in ours.
var kinds = []kind{{
	name: "configmaps",
	list: func(ctx context.Context, c kubernetes.Interface, space string) (runtime.Object, error) {
		return c.CoreV1().ConfigMaps(space).List(ctx, metav1.ListOptions{})
	},
	watch: func(ctx context.Context, c kubernetes.Interface, space string, o metav1.ListOptions) (watch.Interface, error) {
		return c.CoreV1().ConfigMaps(space).Watch(ctx, o)
	},
	make: func(ctx context.Context, c kubernetes.Interface, space string, m metav1.ObjectMeta) (metav1.Object, error) {
		return c.CoreV1().ConfigMaps(space).Create(ctx, &corev1.ConfigMap{ObjectMeta: m}, metav1.CreateOptions{})
	},
}, {
	name: "leases",
	list: func(ctx context.Context, c kubernetes.Interface, space string) (runtime.Object, error) {
		return c.CoordinationV1().Leases(space).List(ctx, metav1.ListOptions{})
	},
	watch: func(ctx context.Context, c kubernetes.Interface, space string, o metav1.ListOptions) (watch.Interface, error) {
		return c.CoordinationV1().Leases(space).Watch(ctx, o)
	},
	make: func(ctx context.Context, c kubernetes.Interface, space string, m metav1.ObjectMeta) (metav1.Object, error) {
		return c.CoordinationV1().Leases(space).Create(ctx, &coordinationv1.Lease{ObjectMeta: m}, metav1.CreateOptions{})
	},
}}

// listen lists and watches until ctx ends, beginning with one of the servers.
func (l *listener) listen(ctx context.Context, servers []server, at int, space string) {
	for known := false; ctx.Err() == nil; at++ {
		client := servers[at%len(servers)].client
		if !known {
			known = l.begin(ctx, client, space)
		}
		if known {
			known = l.goOn(ctx, client, space)
		}
		sleep(ctx, 50*time.Millisecond)
	}
}

// begin lists, and reports whether it could.
func (l *listener) begin(ctx context.Context, client kubernetes.Interface, space string) bool {
	list, err := l.kind.list(ctx, client, space)
	if err != nil {
		return false
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return false
	}
	begun := stretch{from: number(m.GetResourceVersion()), listed: map[string]int64{}}
	begun.to = begun.from
	err = meta.EachListItem(list, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			begun.listed[m.GetName()] = number(m.GetResourceVersion())
		}
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stretches = append(l.stretches, begun)
	return err == nil
}

// goOn watches from what was told last, and reports whether another watch can go on from there.
func (l *listener) goOn(ctx context.Context, client kubernetes.Interface, space string) bool {
	l.mu.Lock()
	s := &l.stretches[len(l.stretches)-1]
	l.mu.Unlock()
	from := metav1.ListOptions{ResourceVersion: strconv.FormatInt(s.to, 10), AllowWatchBookmarks: true}
	w, err := l.kind.watch(ctx, client, space, from)
	if err != nil {
		return !expired(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return !expired(apierrors.FromObject(e.Object))
		}
		m, err := meta.Accessor(e.Object)
		if err != nil {
			return true
		}
		version := number(m.GetResourceVersion())
		l.mu.Lock()
		if e.Type != watch.Bookmark {
			s.told = append(s.told, change{version, m.GetName(), e.Type == watch.Deleted})
		}
		s.to = version
		l.mu.Unlock()
	}
	return true
}

func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

func number(version string) int64 {
	n, _ := strconv.ParseInt(version, 10, 64) // 0 is older than all
	return n
}

// reached is the version up to which all was told.
func (l *listener) reached() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.stretches) == 0 {
		return 0
	}
	return l.stretches[len(l.stretches)-1].to
}

// hearEnd writes once more, waits until all listeners of a kind have heard of it, and judges what they were told.
func (j *journal) hearEnd(ctx context.Context, c *cluster, space string, all []*listener) {
	for _, k := range kinds {
		mine := slices.DeleteFunc(slices.Clone(all), func(l *listener) bool { return l.kind.name != k.name })
		last := int64(0)
		err := until(ctx, func(ctx context.Context) error {
			made, err := k.make(ctx, c.servers[0].client, space, metav1.ObjectMeta{GenerateName: "end-"})
			if err == nil {
				last = number(made.GetResourceVersion())
			}
			return err
		})
		if err != nil {
			j.violations = append(j.violations, fmt.Sprintf("nobody can write %s at the end: %v", k.name, err))
			continue
		}
		for _, l := range mine {
			err := until(ctx, func(context.Context) error {
				if at := l.reached(); at < last {
					return fmt.Errorf("is at %d, and %d was written", at, last)
				}
				return nil
			})
			if err != nil {
				j.violations = append(j.violations, fmt.Sprintf("%s %v, %v after all faults ended", l.name, err, patience))
			}
		}
		heard := map[string][]stretch{}
		for _, l := range mine {
			l.mu.Lock()
			heard[l.name] = slices.Clone(l.stretches)
			for _, s := range l.stretches {
				j.events += len(s.told)
			}
			l.mu.Unlock()
		}
		j.violations = append(j.violations, misheard(heard)...)
	}
}

// misheard compares what listeners were told of one kind. Each must have been told of every change that any of them
// knows of and that came while it listened, once, and in order; and lists must have what was there.
func misheard(all map[string][]stretch) (violations []string) {
	known := map[int64]change{}
	names := slices.Sorted(maps.Keys(all))
	for _, name := range names {
		for _, s := range all[name] {
			for _, v := range s.learn(known) {
				violations = append(violations, name+" "+v)
			}
		}
	}
	versions := slices.Sorted(maps.Keys(known))
	for _, name := range names {
		for _, s := range all[name] {
			for _, v := range s.lacks(known, versions) {
				violations = append(violations, name+" "+v)
			}
		}
	}
	return violations
}

// learn adds what a client knows to what is known, and returns what is out of order or contradicts it.
func (s stretch) learn(known map[int64]change) (violations []string) {
	for object, version := range s.listed {
		known[version] = change{version, object, false}
	}
	last := s.from
	for _, is := range s.told {
		if is.version <= last {
			violations = append(violations, fmt.Sprintf("was told of %s at %d after %d", is.name, is.version, last))
		}
		was, ok := known[is.version]
		if ok && was != is {
			violations = append(violations, fmt.Sprintf("was told at %d of %+v, and another of %+v", is.version, is, was))
		}
		last, known[is.version] = is.version, is
	}
	return violations
}

// lacks returns what of all that is known was not told or listed. versions are those of known, in order.
func (s stretch) lacks(known map[int64]change, versions []int64) (violations []string) {
	told, there := map[int64]bool{}, map[string]change{}
	for _, is := range s.told {
		told[is.version] = true
	}
	for _, version := range versions {
		is := known[version]
		if version <= s.from {
			there[is.name] = is
		} else if version <= s.to && !told[version] {
			violations = append(violations, fmt.Sprintf("was told all up to %d and not of %s at %d", s.to, is.name, version))
		}
	}
	for _, object := range slices.Sorted(maps.Keys(there)) {
		wants, is := there[object].version, s.listed[object]
		if there[object].gone {
			wants = 0
		}
		if is != wants {
			what := fmt.Sprintf("listed %s at %d with version %d, and it had %d", object, s.from, is, wants)
			violations = append(violations, what)
		}
	}
	return violations
}
