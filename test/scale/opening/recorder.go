package opening

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/gates"
	"github.com/everynode/everynode/test/chaos/store"
)

// recorder writes down all that is written of nodes and pods, and when. It is safe for concurrent use.
type recorder struct {
	start time.Time
	nodes *stream
	pods  *stream

	mu      sync.Mutex // guards all below, and what streams know
	writes  []gates.Write
	moments []gates.Moment
	outages []gates.Outage
	newest  int64
	// awaySince is when the server was killed, if it has not answered since.
	awaySince time.Duration
	gone      bool
	// last is the newest write of each object; open and placed are the nodes and the ordinary pods that are done.
	last         map[types.UID]int64
	open, placed set
}

// set is a set whose size is asked for often.
type set map[types.UID]struct{}

func (s set) put(uid types.UID, in bool) {
	if in {
		s[uid] = struct{}{}
	} else {
		delete(s, uid)
	}
}

// stream is what is known of a kind.
type stream struct {
	resource string
	list     func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch    func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// known are the stretches of revisions of which nothing is missing, in order.
	known []stretch
	// there are the objects that there are now.
	there set
	// listening tells that a watch goes on.
	listening bool
}

// stretch are the revisions after one, up to another.
type stretch struct{ after, to int64 }

func newRecorder() *recorder {
	return &recorder{
		start: time.Now(), last: map[types.UID]int64{}, open: set{}, placed: set{},
		nodes: &stream{resource: "nodes", there: set{}}, pods: &stream{resource: "pods", there: set{}},
	}
}

// follow listens until ctx ends. What it returns waits for the end.
func (r *recorder) follow(ctx context.Context, client kubernetes.Interface) (ended func()) {
	core := client.CoreV1()
	r.nodes.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return core.Nodes().List(ctx, o)
	}
	r.nodes.watch = core.Nodes().Watch
	pods := core.Pods(namespace)
	r.pods.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) }
	r.pods.watch = pods.Watch
	var loops sync.WaitGroup
	loops.Go(func() { r.tick(ctx, client) })
	for _, s := range []*stream{r.nodes, r.pods} {
		loops.Go(func() {
			for ctx.Err() == nil {
				err := r.listen(ctx, s)
				if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, errNothingKnown) {
					_ = r.begin(ctx, s) // tried again, until it works
				}
				pause(ctx, 5*time.Millisecond)
			}
		})
	}
	return loops.Wait
}

var errNothingKnown = errors.New("nothing is known yet")

// begin lists what there is.
func (r *recorder) begin(ctx context.Context, s *stream) error {
	list, err := s.list(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list %s: %w", s.resource, err)
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	at, err := revision(of.GetResourceVersion())
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := len(s.known) == 0 || meta.LenList(list) != len(s.there)
	err = meta.EachListItem(list, func(o runtime.Object) error {
		object := o.(metav1.Object)
		version, err := revision(object.GetResourceVersion())
		if err == nil && version > r.last[object.GetUID()] {
			changed = true
			r.see(s, version, object, false)
		}
		return err
	})
	if err != nil {
		return err
	}
	if !changed {
		s.known[len(s.known)-1].to = at // nothing has happened since
		return nil
	}
	s.known = append(s.known, stretch{at, at})
	return nil
}

// listen watches from where all is known.
func (r *recorder) listen(ctx context.Context, s *stream) error {
	r.mu.Lock()
	at := int64(0)
	if len(s.known) > 0 {
		at = s.known[len(s.known)-1].to
	}
	r.mu.Unlock()
	if at == 0 {
		return errNothingKnown
	}
	w, err := s.watch(ctx, metav1.ListOptions{ResourceVersion: strconv.FormatInt(at, 10)})
	if err != nil {
		return err
	}
	defer w.Stop()
	defer r.listening(s, false)
	for first := true; ; first = false {
		var e watch.Event
		more := true
		if first { // one that cannot go on says so at once
			select {
			case e, more = <-w.ResultChan():
			case <-time.After(100 * time.Millisecond):
				r.listening(s, true)
				continue
			}
		} else {
			e, more = <-w.ResultChan()
		}
		switch {
		case !more:
			return nil
		case e.Type == watch.Error:
			return apierrors.FromObject(e.Object)
		}
		r.listening(s, true)
		err := r.told(s, e)
		if err != nil {
			return err
		}
	}
}

func (r *recorder) listening(s *stream, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.listening = is
}

func (r *recorder) listens() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes.listening && r.pods.listening
}

func (r *recorder) told(s *stream, e watch.Event) error {
	object := e.Object.(metav1.Object)
	at, err := revision(object.GetResourceVersion())
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment(at)
	r.see(s, at, object, e.Type == watch.Deleted)
	last := &s.known[len(s.known)-1]
	last.to = max(last.to, at)
	return nil
}

// see takes note of a write; r.mu is held.
func (r *recorder) see(s *stream, at int64, object metav1.Object, gone bool) {
	w, is := gates.Of(at, object, gone)
	if !is {
		return
	}
	r.writes = append(r.writes, w)
	uid := object.GetUID()
	if at < r.last[uid] {
		return // a hole is filled
	}
	r.last[uid] = at
	s.there.put(uid, !gone)
	switch {
	case w.Node != nil:
		r.open.put(uid, !w.Node.Closed && !gone)
	case w.Pod.Daemon == "":
		r.placed.put(uid, w.Pod.Node != "" && !gone)
	}
}

// moment takes note that a revision is there; r.mu is held.
func (r *recorder) moment(at int64) {
	if at > r.newest {
		r.newest = at
		r.moments = append(r.moments, gates.Moment{Revision: at, At: time.Since(r.start)})
	}
}

// tick writes something small, over and over: its answers say how far the database is, and that there is a server.
func (r *recorder) tick(ctx context.Context, client kubernetes.Interface) {
	maps := client.CoreV1().ConfigMaps(namespace)
	for i := 0; ctx.Err() == nil; i++ {
		begun := time.Since(r.start)
		change := fmt.Appendf(nil, `{"data":{"i":"%d"}}`, i)
		got, err := maps.Patch(ctx, "tick", types.MergePatchType, change, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			first := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tick"}}
			got, err = maps.Create(ctx, first, metav1.CreateOptions{})
		}
		if err == nil {
			r.answered(begun, got.ResourceVersion)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func (r *recorder) answered(begun time.Duration, version string) {
	at, err := revision(version)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.moment(at)
	}
	if r.gone && begun > r.awaySince {
		r.outages = append(r.outages, gates.Outage{From: r.awaySince, To: time.Since(r.start)})
		r.gone = false
	}
}

// away takes note that the server is killed.
func (r *recorder) away() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gone {
		r.awaySince, r.gone = time.Since(r.start), true
	}
	r.nodes.listening, r.pods.listening = false, false
}

// fill reads from the database of a server that was killed what nobody was told of.
func (r *recorder) fill(ctx context.Context, folder string) error {
	db, err := etcd.Start(ctx, etcd.Options{Dir: folder, NoFsync: true})
	if err != nil {
		return fmt.Errorf("open the database of the killed server: %w", err)
	}
	defer db.Close()
	for _, s := range []*stream{r.nodes, r.pods} {
		r.mu.Lock()
		from := s.known[0].to
		r.mu.Unlock()
		to, err := store.Since(ctx, db, s.resource, from, func(e history.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.see(s, e.Revision, e.Object, e.Deleted)
		})
		if err != nil {
			return fmt.Errorf("read what of %s nobody was told of: %w", s.resource, err)
		}
		r.mu.Lock()
		s.known = merged(append(s.known, stretch{from, to}))
		r.mu.Unlock()
	}
	return nil
}

// merged makes stretches that touch one.
func merged(known []stretch) (out []stretch) {
	slices.SortFunc(known, func(a, b stretch) int { return int(a.after - b.after) })
	for _, s := range known {
		if len(out) > 0 && s.after <= out[len(out)-1].to {
			out[len(out)-1].to = max(out[len(out)-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// holes is how many times something may be missing.
func (r *recorder) holes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.nodes.known) + len(r.pods.known) - 2
}

func (r *recorder) opened() int { return r.size(r.open) }
func (r *recorder) bound() int  { return r.size(r.placed) }

func (r *recorder) size(of set) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(of)
}

func (r *recorder) history() gates.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return gates.History{
		Writes: slices.Clone(r.writes), Moments: slices.Clone(r.moments), Outages: slices.Clone(r.outages),
	}
}

func revision(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the revision %q: %w", text, err)
	}
	return n, nil
}
