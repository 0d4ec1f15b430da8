package queue

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/fit"
)

// Config sets the queue's delays. Zero fields take the defaults.
type Config struct {
	// InitialBackoff is the wait after the first failed attempt, default 1 s; it doubles up to MaxBackoff, default 10 s.
	InitialBackoff, MaxBackoff time.Duration
	// MaxParked is how long a pod stays parked when no change helps it, default 5 min.
	MaxParked time.Duration
}

// Wait says what may help a parked pod.
type Wait struct {
	// For is the set of changes that may help.
	For fit.Change
	// Nodes limits those changes to these nodes; nil means any node.
	Nodes []string
	// Claims are claims, as namespace/name, any change of which may help.
	Claims []string
}

// Queue holds the pods that wait for a node. Call New.
type Queue struct {
	config  Config
	items   map[types.UID]*item
	active  itemHeap
	backoff itemHeap
	parked  itemHeap
	// Parked items for which any node may help, by the changes that may; those for which certain nodes may, by these; and
	// all that have claims, by them.
	anywhere map[fit.Change]map[types.UID]*item
	pinned   map[string]map[types.UID]*item
	claimed  map[string]map[types.UID]*item
	sequence uint64
}

type place uint8

const (
	taken place = iota // popped: being scheduled
	inActive
	inBackoff
	inParked
)

type item struct {
	pod      *fit.Pod
	place    place
	index    int // in its heap
	attempts int
	entered  time.Time // when it was added
	since    time.Time // when it entered the active or back-off place
	failed   time.Time // when the last attempt ended
	sequence uint64
	wait     Wait
	// patient says that the last attempt did not fail: it waits for something that was begun.
	patient bool
	// postponed is until when there is no attempt; it counts while the item is in the back-off place.
	postponed time.Time
}

// New returns an empty queue.
func New(config Config) *Queue {
	if config.InitialBackoff == 0 {
		config.InitialBackoff = time.Second
	}
	if config.MaxBackoff == 0 {
		config.MaxBackoff = 10 * time.Second
	}
	if config.MaxParked == 0 {
		config.MaxParked = 5 * time.Minute
	}
	q := &Queue{config: config, items: map[types.UID]*item{}, anywhere: map[fit.Change]map[types.UID]*item{},
		pinned:  map[string]map[types.UID]*item{},
		claimed: map[string]map[types.UID]*item{}}
	q.active.less = byPriority
	q.backoff.less = func(a, b *item) bool { return earlier(a, b, q.readyAt(a), q.readyAt(b)) }
	q.parked.less = func(a, b *item) bool { return earlier(a, b, a.failed, b.failed) }
	return q
}

// Add puts a pod in, or takes over its newer object. A pod that is waiting after a failure is tried again when
// specChanged says that what scheduling looks at is different; its back-off still holds.
func (q *Queue) Add(pod *fit.Pod, specChanged bool, now time.Time) {
	known := q.items[pod.UID]
	if known == nil {
		known = &item{entered: now}
		q.items[pod.UID] = known
		known.pod = pod
		q.activate(known, now)
		return
	}
	known.pod = pod
	switch {
	case known.place == inActive:
		heap.Fix(&q.active, known.index)
	case known.place == inParked && specChanged:
		q.wake(known, now)
	}
}

// Get returns the queue's object of a pod, also while it is being scheduled; nil if the pod is not known.
func (q *Queue) Get(uid types.UID) *fit.Pod {
	if known := q.items[uid]; known != nil {
		return known.pod
	}
	return nil
}

// History returns how often a pod was popped, and since when it is known.
func (q *Queue) History(uid types.UID) (attempts int, since time.Time) {
	if known := q.items[uid]; known != nil {
		return known.attempts, known.entered
	}
	return 0, time.Time{}
}

// Delete forgets a pod: it was bound, deleted, or is no longer ours.
func (q *Queue) Delete(uid types.UID) {
	if known := q.items[uid]; known != nil {
		q.remove(known)
		delete(q.items, uid)
	}
}

// Pop takes the next pod to schedule out, nil if none is due. The pod stays known until Delete; Retry or Park put it
// back.
func (q *Queue) Pop(now time.Time) *fit.Pod {
	q.expire(now)
	if q.active.Len() == 0 {
		return nil
	}
	next := q.active.items[0]
	q.remove(next)
	next.attempts++
	return next.pod
}

// Ahead reports whether a pod is due that comes before one of this priority that came at that time.
func (q *Queue) Ahead(priority int32, since, now time.Time) bool {
	q.expire(now)
	if q.active.Len() == 0 {
		return false
	}
	first := q.active.items[0]
	if first.pod.Priority != priority {
		return first.pod.Priority > priority
	}
	return !first.since.After(since)
}

// Retry puts a popped pod back after an attempt that failed for a reason other than the nodes.
func (q *Queue) Retry(uid types.UID, now time.Time) {
	if known := q.items[uid]; known != nil && known.place == taken {
		known.failed, known.since, known.patient = now, now, false
		q.push(known, inBackoff)
	}
}

// Postpone puts a popped pod back for which it is not the time. That was no attempt.
func (q *Queue) Postpone(uid types.UID, until time.Time) {
	if known := q.items[uid]; known != nil && known.place == taken {
		known.attempts--
		known.postponed = until
		q.push(known, inBackoff)
	}
}

// Park puts a popped pod back that fits no node as they are now.
func (q *Queue) Park(uid types.UID, wait Wait, now time.Time) {
	known := q.items[uid]
	if known == nil || known.place != taken {
		return
	}
	known.failed, known.wait, known.patient = now, wait, false
	q.shelve(known)
}

// Await puts a popped pod back whose place was found, and for which something has to be done first. When one of its
// claims changes it is tried again at once.
func (q *Queue) Await(uid types.UID, wait Wait, now time.Time) {
	known := q.items[uid]
	if known == nil || known.place != taken {
		return
	}
	known.attempts--
	known.failed, known.wait, known.patient = now, wait, true
	q.shelve(known)
}

// Abort puts a pod back for which Await was called, and what it was to wait for could not be begun: the attempt has
// failed after all.
func (q *Queue) Abort(uid types.UID, now time.Time) {
	known := q.items[uid]
	if known == nil || !known.patient || known.place == taken {
		return
	}
	q.remove(known)
	known.attempts++
	known.failed, known.since, known.patient = now, now, false
	q.push(known, inBackoff)
}

// shelve parks an item where what it waits for finds it.
func (q *Queue) shelve(known *item) {
	wait := known.wait
	q.push(known, inParked)
	for _, key := range wait.Claims {
		put(q.claimed, key, known)
	}
	if wait.Nodes == nil {
		put(q.anywhere, wait.For, known)
		return
	}
	for _, name := range wait.Nodes {
		put(q.pinned, name, known)
	}
}

func put[K comparable](in map[K]map[types.UID]*item, key K, known *item) {
	if in[key] == nil {
		in[key] = map[types.UID]*item{}
	}
	in[key][known.pod.UID] = known
}

func take[K comparable](from map[K]map[types.UID]*item, key K, known *item) {
	delete(from[key], known.pod.UID)
	if len(from[key]) == 0 {
		delete(from, key)
	}
}

// Changed tells of a change of one node; pods parked for such a change are tried again.
func (q *Queue) Changed(nodeName string, change fit.Change, now time.Time) {
	if change == 0 {
		return
	}
	var woken []*item
	for helpful, parked := range q.anywhere {
		if helpful&change != 0 {
			woken = slices.AppendSeq(woken, maps.Values(parked))
		}
	}
	for _, waiting := range q.pinned[nodeName] {
		if waiting.wait.For&change != 0 {
			woken = append(woken, waiting)
		}
	}
	q.wakeAll(woken, now)
}

// ChangedEverywhere tells of a change that is about all nodes.
func (q *Queue) ChangedEverywhere(change fit.Change, now time.Time) {
	var woken []*item
	for _, waiting := range q.parked.items {
		if waiting.wait.For&change != 0 {
			woken = append(woken, waiting)
		}
	}
	q.wakeAll(woken, now)
}

// ClaimChanged tells of a change of a claim, named as namespace/name; pods parked with it are tried again.
func (q *Queue) ClaimChanged(key string, now time.Time) {
	q.wakeAll(slices.Collect(maps.Values(q.claimed[key])), now)
}

// wakeAll wakes parked pods in the order in which they were parked.
func (q *Queue) wakeAll(woken []*item, now time.Time) {
	slices.SortFunc(woken, func(a, b *item) int { return cmp.Compare(a.sequence, b.sequence) })
	for _, waiting := range woken {
		q.wake(waiting, now)
	}
}

// Next returns when Pop may have something to give that it has not now: the end of the nearest back-off or of the
// longest parking. False if nothing is delayed.
func (q *Queue) Next() (time.Time, bool) {
	var next time.Time
	if q.backoff.Len() > 0 {
		next = q.readyAt(q.backoff.items[0])
	}
	if q.parked.Len() > 0 {
		flush := q.parked.items[0].failed.Add(q.config.MaxParked)
		if next.IsZero() || flush.Before(next) {
			next = flush
		}
	}
	return next, !next.IsZero()
}

// Lengths returns how many pods are active, in back-off and parked.
func (q *Queue) Lengths() (active, backoff, parked int) {
	return q.active.Len(), q.backoff.Len(), q.parked.Len()
}

// Dump renders the state for tests and inspection, in the order in which pods would leave each place.
func (q *Queue) Dump() string {
	var out strings.Builder
	for _, part := range []struct {
		name string
		heap *itemHeap
	}{{"active", &q.active}, {"backoff", &q.backoff}, {"parked", &q.parked}} {
		sorted := slices.Clone(part.heap.items)
		slices.SortFunc(sorted, func(a, b *item) int {
			if part.heap.less(a, b) {
				return -1
			}
			return 1
		})
		for _, waiting := range sorted {
			fmt.Fprintf(&out, "%s %s attempts=%d\n", part.name, waiting.pod, waiting.attempts)
		}
	}
	return out.String()
}

// expire moves the pods whose back-off is over, or that were parked for too long, to active.
func (q *Queue) expire(now time.Time) {
	for q.backoff.Len() > 0 && !q.readyAt(q.backoff.items[0]).After(now) {
		due := q.backoff.items[0]
		q.remove(due)
		q.activate(due, now)
	}
	for q.parked.Len() > 0 && !q.parked.items[0].failed.Add(q.config.MaxParked).After(now) {
		q.wake(q.parked.items[0], now)
	}
}

// wake moves a parked pod to active, or to back-off if that still runs.
func (q *Queue) wake(parked *item, now time.Time) {
	q.remove(parked)
	parked.since = now
	if q.readyAt(parked).After(now) {
		q.push(parked, inBackoff)
		return
	}
	q.activate(parked, now)
}

func (q *Queue) activate(entering *item, now time.Time) {
	entering.since, entering.postponed = now, time.Time{}
	q.push(entering, inActive)
}

func (q *Queue) push(entering *item, into place) {
	q.sequence++
	entering.sequence = q.sequence
	entering.place = into
	heap.Push(q.heapOf(into), entering)
}

func (q *Queue) remove(leaving *item) {
	if leaving.place == taken {
		return
	}
	heap.Remove(q.heapOf(leaving.place), leaving.index)
	if leaving.place == inParked {
		take(q.anywhere, leaving.wait.For, leaving)
		for _, name := range leaving.wait.Nodes {
			take(q.pinned, name, leaving)
		}
		for _, key := range leaving.wait.Claims {
			take(q.claimed, key, leaving)
		}
	}
	leaving.place = taken
}

func (q *Queue) heapOf(in place) *itemHeap {
	switch in {
	case inActive:
		return &q.active
	case inBackoff:
		return &q.backoff
	case inParked:
		return &q.parked
	default:
		panic("a pod that is being scheduled is in no heap")
	}
}

// readyAt is when the back-off after the pod's last attempt ends.
func (q *Queue) readyAt(waiting *item) time.Time {
	if !waiting.postponed.IsZero() {
		return waiting.postponed
	}
	if waiting.patient {
		return waiting.failed
	}
	delay := q.config.InitialBackoff
	for i := 1; i < waiting.attempts && delay < q.config.MaxBackoff; i++ {
		delay *= 2
	}
	return waiting.failed.Add(min(delay, q.config.MaxBackoff))
}
