package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/test/chaos/describe"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/store"
)

// journal holds all that happened in a round. It is safe for concurrent use.
type journal struct {
	start time.Time

	mu      sync.Mutex
	newest  int64 // the newest revision that was seen
	stamps  []stamp
	record  history.Record
	lines   []string
	seen    map[int64]time.Duration // when a revision was seen, if it was at once
	trouble []error
	faults  int
}

// stamp is when a revision was the newest that was seen.
type stamp struct {
	at       time.Duration
	revision int64
}

// underWay is the longest time from a decision of the DaemonSet controller's to its
// request that counts: its workers are more than it has to do in a round.
const underWay = 500 * time.Millisecond

// learn takes in that there is a revision; mu is held.
func (j *journal) learn(revision int64) {
	if revision > j.newest {
		j.newest = revision
		j.stamps = append(j.stamps, stamp{time.Since(j.start), revision})
	}
}

// before is the newest revision that was seen some time ago; mu is held.
func (j *journal) before(ago time.Duration) int64 {
	then := time.Since(j.start) - ago
	i, _ := slices.BinarySearchFunc(j.stamps, then, func(s stamp, at time.Duration) int { return cmp.Compare(s.at, at) })
	if i == 0 {
		return 0
	}
	return j.stamps[i-1].revision
}

func newJournal() *journal {
	return &journal{start: time.Now(), seen: map[int64]time.Duration{}}
}

// note adds a line to the timeline.
func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%s  %s", at(time.Since(j.start)), fmt.Sprintf(format, args...)))
}

func at(d time.Duration) string { return fmt.Sprintf("%7.3f s", d.Seconds()) }

// fault notes something that goes wrong.
func (j *journal) fault(format string, args ...any) {
	j.mu.Lock()
	j.faults++
	j.mu.Unlock()
	j.note("FAULT "+format, args...)
}

// broken notes that the round itself does not work.
func (j *journal) broken(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trouble = append(j.trouble, err)
}

// wrote notes what a user did.
func (j *journal) wrote(w history.Write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record.Writes = append(j.record.Writes, w)
}

// happened notes when a change was seen in the database.
func (j *journal) happened(e history.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.learn(e.Revision)
	j.seen[e.Revision] = time.Since(j.start)
}

// read takes the whole history from a database that nobody writes to any more.
func (j *journal) read(ctx context.Context, db *etcd.Server) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var events []history.Event
	for i := range store.Kept {
		if err := store.Watch(ctx, db, i, false, func(e history.Event) { events = append(events, e) }); err != nil {
			return err
		}
	}
	slices.SortStableFunc(events, func(a, b history.Event) int { return int(a.Revision - b.Revision) })
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record.Events = events
	return errors.Join(j.trouble...)
}

// called notes that the DaemonSet controller is about to ask for something.
func (j *journal) called(c history.Call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.Since, c.Early = j.newest, j.before(underWay)
	j.record.Calls = append(j.record.Calls, c)
}

// delivered notes that the DaemonSet controller is about to learn of an object.
func (j *journal) delivered(obj any) {
	last, gone := obj.(toolscache.DeletedFinalStateUnknown)
	if gone {
		obj = last.Obj
	}
	object, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	version, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		j.broken(fmt.Errorf("an object was delivered with the resource version %q", object.GetResourceVersion()))
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.learn(version)
	s := history.Sight{UID: object.GetUID(), At: j.newest, Version: version}
	j.record.Sights = append(j.record.Sights, s)
	if gone {
		j.record.Ends = append(j.record.Ends, s)
	}
}

// begins notes that a DaemonSet controller begins, which knows of nothing.
func (j *journal) begins() {
	j.mu.Lock()
	defer j.mu.Unlock()
	known := map[types.UID]bool{}
	for _, s := range j.record.Sights {
		known[s.UID] = true
	}
	for uid := range known {
		j.record.Ends = append(j.record.Ends, history.Sight{UID: uid, At: j.newest})
	}
}

// named are the objects that a text speaks of, and the revisions of its DaemonSets.
func (j *journal) named(text string) (out []types.UID) {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ':' || r == ',' })
	for _, e := range j.record.Events {
		revision, _ := e.Object.(*appsv1.ControllerRevision)
		if slices.Contains(words, e.Object.GetName()) ||
			revision != nil && len(revision.OwnerReferences) > 0 && slices.Contains(words, revision.OwnerReferences[0].Name) {
			out = append(out, e.Object.GetUID())
		}
	}
	return out
}

// about tells the history of some objects.
func (j *journal) about(objects []types.UID) []string {
	return describe.About(j.record.Events, objects, func(revision int64) string {
		if d, ok := j.seen[revision]; ok {
			return at(d)
		}
		return "         "
	})
}
