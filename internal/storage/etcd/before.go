package etcd

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/storage/etcd/offline"
	"github.com/everynode/everynode/internal/storage/etcd/roster"
)

// memberPath is where a member tells how another stands, by the ID behind it.
const memberPath = "/everynode/member/"

// How a member stands, as another knows it.
const (
	standsMember  = "member"
	standsRemoved = "removed"
	standsUnknown = "unknown"
)

const (
	// beforeInterval is how often a member that is about to start asks who is there.
	beforeInterval = 300 * time.Millisecond
	// waitFirst is after how long it first says that nobody is, later every waitReminder.
	waitFirst = time.Second
	// beforeOthers is how long it waits for more answers once there is one.
	beforeOthers = time.Second
)

// ErrStranger says that those who answer at the members' addresses have another authority.
var ErrStranger = errors.New(
	"the databases of the other servers are of another authority than this one's: it was replaced while this server was " +
		"removed or away, or they are another cluster's",
)

// before is a member that has a database, and has not opened it yet: what it had agreed to may
// count no more. Until another one has told, nothing is written.
type before struct {
	peers *Peers
	dir   string
	has   offline.Data
	// contacted tells that another member, for which this one counts, wants to speak with it.
	contacted atomic.Bool
}

// heard is what another member has said of this one.
type heard struct {
	roster.Member
	// alive tells that it is a member, and answers; stranger that another answers in its place.
	alive, stranger, removed bool
	// mark is how far this member had come, as the other knows, and applied how far the other is.
	mark, applied uint64
}

// wait returns when another member has answered and has nothing against a start, and at once
// where none has to: one that is alone, and one that has no data yet.
func (b *before) wait(ctx context.Context) error {
	self, others := b.others()
	if self == "" || len(others) == 0 {
		return b.has.CheckEnd(b.dir)
	}
	for remind := time.Now().Add(waitFirst); ; {
		all := b.ask(ctx, self, others)
		if err := b.judge(all); err != nil {
			return err
		}
		if b.enough(all) {
			return ctx.Err()
		}
		if time.Now().After(remind) {
			remind = time.Now().Add(waitReminder)
			b.tell(ctx, all)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(beforeInterval):
		}
	}
}

// cutOff reports whether the log ends before the database file. A member that is behind takes over
// what a majority has while it still writes that to its own log. If it loses power just then, or its
// disk is full, its file is ahead of its log. It has agreed to nothing of that, and gets it again from
// the others. But had it lost a part of its log, its start could undo writes that count, unless
// another has them.
func (b *before) cutOff() bool { return b.has.Last < b.has.Applied }

// enough reports whether those who have answered do for a start.
func (b *before) enough(all []heard) bool {
	if b.cutOff() {
		return slices.ContainsFunc(all, func(h heard) bool { return h.applied >= b.has.Applied })
	}
	alone := !slices.ContainsFunc(all, func(h heard) bool { return !h.Learner })
	return alone || b.contacted.Load() || slices.ContainsFunc(all, func(h heard) bool { return h.alive })
}

// tell says for whom this member waits.
func (b *before) tell(ctx context.Context, all []heard) {
	var names []string
	for _, h := range all {
		names = append(names, cmp.Or(h.Name, h.URL))
	}
	if b.cutOff() {
		klog.FromContext(ctx).Info(
			"The database of this server has changes that its log does not have; waiting for another server that has them. "+
				"Start those that are silent",
			"log", b.has.Last, "database", b.has.Applied, "without", names,
		)
		return
	}
	tellWaiting(ctx, len(all)+1, names)
}

// others are this member's ID, and the other members, as far as it remembers.
func (b *before) others() (self string, others []roster.Member) {
	self = b.has.Member
	for _, m := range slices.Concat(b.has.Members, b.peers.Known) {
		switch {
		case m.URL == b.peers.URL:
			if self == "" {
				self = m.ID // it was let in, and has never started
			}
		case m.ID == b.has.Member, m.URL == "", slices.Contains(b.has.Gone, m.ID), slices.ContainsFunc(others,
			func(o roster.Member) bool { return o.URL == m.URL }):
		default:
			others = append(others, m)
		}
	}
	return self, others
}

func (b *before) ask(ctx context.Context, self string, others []roster.Member) []heard {
	ctx, cancel := context.WithTimeout(ctx, peerPatience)
	defer cancel()
	out := make([]heard, len(others))
	var wg sync.WaitGroup
	for i, m := range others {
		wg.Go(func() {
			out[i] = b.askOne(ctx, self, m)
			if out[i].alive {
				time.AfterFunc(beforeOthers, cancel)
			}
		})
	}
	wg.Wait()
	return out
}

func (b *before) askOne(ctx context.Context, self string, m roster.Member) heard {
	out := heard{Member: m}
	body, err := askPeer(ctx, b.peers.Keys, m.URL+memberPath+self, maxAnswer)
	var refused *refusedError
	out.alive = err == nil || errors.As(err, &refused) // one of before there was this question refuses it
	out.removed = err == nil && string(body) == standsRemoved
	out.stranger = isStranger(err)
	if !out.alive || b.has.Member == "" {
		return out
	}
	if body, err = askPeer(ctx, b.peers.Keys, m.URL+watermarkPath+self, maxAnswer); err == nil {
		out.mark, _ = strconv.ParseUint(string(body), 10, 64) // one that cannot tell has nothing against it
	}
	if b.cutOff() {
		out.applied = b.askApplied(ctx, m)
	}
	return out
}

// askApplied tells how far another member is, 0 if it does not say.
func (b *before) askApplied(ctx context.Context, m roster.Member) uint64 {
	var status Status
	body, err := askPeer(ctx, b.peers.Keys, m.URL+statusPath, maxAnswer)
	if err == nil {
		err = json.Unmarshal(body, &status)
	}
	if err != nil {
		return 0
	}
	return status.Applied
}

// isStranger reports whether who answers at a member's address and this one do not trust each
// other's authority. What a wrong clock does is something else.
func isStranger(err error) bool {
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &unknown) || err != nil &&
		strings.HasSuffix(err.Error(), "tls: unknown certificate authority")
}

// judge says what others have against a start.
func (b *before) judge(all []heard) error {
	alive, strangers, come := 0, []string(nil), max(b.has.Last, b.has.Applied)
	for _, h := range all {
		switch {
		case h.removed:
			return ErrRemoved
		case h.mark > come:
			return fmt.Errorf(
				"the database in %s is older than what this server had before (it ends at change %d, and had %d): an old disk or "+
					"copy was put back; "+
					"run \"everynode members remove %s\" on another server, move %s away, and join again",
				b.dir, come, h.mark, b.peers.Name, b.dir,
			)
		case h.alive:
			alive++
		case h.stranger:
			strangers = append(strangers, cmp.Or(h.Name, h.URL))
		}
	}
	if alive == 0 && len(strangers) > 0 && !b.contacted.Load() {
		return fmt.Errorf("%w (%s)", ErrStranger, strings.Join(strangers, ", "))
	}
	return nil
}

// handler answers other members while this one waits: with what is on its disk.
func (b *before) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if from := r.Header.Get("X-Server-From"); strings.HasPrefix(r.URL.Path, "/raft") && from != "" &&
			!slices.Contains(b.has.Gone, from) {
			b.contacted.Store(true)
		}
		// Whatever else is answered here, etcd could take for the news that the one who asks is removed.
		http.Error(w, "this server starts", http.StatusServiceUnavailable)
	})
	mux.HandleFunc(memberPath, tellStanding(func(id string) string {
		switch {
		case slices.Contains(b.has.Gone, id):
			return standsRemoved
		case slices.ContainsFunc(b.has.Members, func(m roster.Member) bool { return m.ID == id }):
			return standsMember
		}
		return standsUnknown
	}))
	mux.HandleFunc(watermarkPath, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strconv.FormatUint(b.has.Marks[r.URL.Path[len(watermarkPath):]],
			10)) // who asked has gone if this fails
	})
	return mux
}

func tellStanding(of func(id string) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, of(r.URL.Path[len(memberPath):])) // as above
	}
}

// tellWaiting says for whom a member waits.
func tellWaiting(ctx context.Context, servers int, silent []string) {
	klog.FromContext(ctx).Info(
		"Waiting for a majority of the servers; start those that are silent. If they are lost for good, stop this one and "+
			"run \"everynode members reset\" here",
		"servers", servers, "silent", silent,
	)
}
