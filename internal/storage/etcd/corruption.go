package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/files/wholefile"
	"github.com/everynode/everynode/internal/storage/etcd/hashcheck"
	"github.com/everynode/everynode/internal/storage/etcd/roster"
)

// ErrCorrupt says that a member holds something else than a majority of the others.
var ErrCorrupt = errors.New("the database of this server is corrupt")

// ErrDisputed says that members hold different things, and that no majority agrees.
var ErrDisputed = errors.New("the databases of the servers differ, and no majority of them agrees")

const (
	// compareInterval is how often hashes are compared, if there are new ones: compaction makes one every five to
	// ten minutes at least.
	compareInterval = 20 * time.Second
	// corruptFile is in the folder of a database that was found corrupt. It says why.
	corruptFile = "corrupt"
	// corruptionPage says what an operator does.
	corruptionPage = "docs/operations.md, A database is corrupt"
)

// comparison is what a member found when it last compared hashes.
type comparison struct {
	mu       sync.Mutex // guards all below
	verdicts map[string]hashcheck.Verdict
	// same is when this member was last found to hold what a majority holds.
	same time.Time
}

// hashes are of this member's last compactions.
func (s *Server) hashes() (out []hashcheck.Hash) {
	for _, h := range s.etcd.Server.KV().HashStorage().Hashes() {
		out = append(out, hashOf(h))
	}
	return out
}

func hashOf(h mvcc.KeyValueHash) hashcheck.Hash {
	return hashcheck.Hash{Before: h.CompactRevision, Revision: h.Revision, Sum: h.Hash}
}

// Compare says of each member, by ID, how its database stands, as far as those who answered tell.
func Compare(answers []Answer) map[string]hashcheck.Verdict {
	var all []hashcheck.Member
	for _, a := range answers {
		m := hashcheck.Member{ID: a.ID, Learner: a.Learner}
		if a.Err == nil && a.Status.ID == a.ID { // else another one answers at its address
			m.Hashes = a.Status.Hashes
		}
		all = append(all, m)
	}
	return hashcheck.Judge(all)
}

// keepComparing compares this member's database with those of the others until ctx ends, or it is found corrupt. Each
// member judges itself: what etcd has for this raises an alarm that stops all of them.
func (s *Server) keepComparing(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !s.toCompare() {
			continue
		}
		err := s.compare(ctx, time.Now())
		if err != nil {
			s.fatal.report(err)
			return
		}
	}
}

// toCompare reports whether there is a hash that was not found the same at all members.
func (s *Server) toCompare() bool {
	newest := int64(0)
	for _, h := range s.hashes() {
		newest = max(newest, h.Revision)
	}
	s.comparison.mu.Lock()
	defer s.comparison.mu.Unlock()
	return slices.ContainsFunc(s.Members(), func(m roster.Member) bool {
		v := s.comparison.verdicts[m.ID]
		return newest > 0 && (v.State != hashcheck.Same || v.Revision < newest)
	})
}

// compare returns an error if this member is the corrupt one, and writes that down for the next start.
func (s *Server) compare(ctx context.Context, now time.Time) error {
	verdicts := Compare(s.Ask(ctx))
	if ctx.Err() != nil {
		return nil
	}
	mine := verdicts[s.Self()]
	s.comparison.mu.Lock()
	for id, v := range verdicts {
		if v != s.comparison.verdicts[id] {
			s.tell(id, v)
		}
	}
	s.comparison.verdicts = verdicts
	if mine.State == hashcheck.Same {
		s.comparison.same = now
	}
	s.comparison.mu.Unlock()
	if mine.State != hashcheck.Odd {
		return nil
	}
	found := fmt.Sprintf("at revision %d it differed from what a majority of the servers agrees on, on %s",
		mine.Revision, now.UTC().Format(time.RFC3339))
	dir := s.etcd.Config().Dir
	err := wholefile.Write(filepath.Join(dir, corruptFile), 0o600, wholefile.Bytes([]byte(found+"\n")))
	if err != nil {
		err = fmt.Errorf("write down that the database is corrupt: %w", err)
	}
	return errors.Join(corrupt(dir, s.peers.Name, found), err)
}

// tell has an operator read how another member stands.
func (s *Server) tell(id string, v hashcheck.Verdict) {
	switch name := s.nameOf(id); v.State {
	case hashcheck.Odd:
		klog.ErrorS(ErrCorrupt, "A server's database differs from that of a majority; that server stops",
			"server", name, "revision", v.Revision)
	case hashcheck.Disputed:
		klog.ErrorS(ErrDisputed, "A server's database differs from those of others; see "+corruptionPage, "server",
			name,
			"revision", v.Revision)
	}
}

func (s *Server) nameOf(id string) string {
	for _, m := range s.Members() {
		if m.ID == id && m.Name != "" {
			return m.Name
		}
	}
	return id
}

// Disputed is an error while members hold different things and no majority agrees: who joined then would copy one of
// them, and make a majority of what may be wrong.
func (s *Server) Disputed() error {
	s.comparison.mu.Lock()
	ids := hashcheck.With(hashcheck.Disputed, s.comparison.verdicts)
	s.comparison.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	for i, id := range ids {
		ids[i] = s.nameOf(id)
	}
	slices.Sort(ids)
	return fmt.Errorf("%w (%s); remove the wrong one first: see "+corruptionPage, ErrDisputed, strings.Join(ids, ", "))
}

// corrupt says what to do with a corrupt database.
func corrupt(dir, name, found string) error {
	return fmt.Errorf("%w: %s; run \"everynode members remove %s\" on another server, move %s away, and join again "+
		"(or remove %s to use it as it is)", ErrCorrupt, found, name, dir, filepath.Join(dir, corruptFile))
}

// checkCorrupt refuses a database that was found corrupt.
func checkCorrupt(o Options) error {
	found, err := os.ReadFile(filepath.Join(o.Dir, corruptFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find out whether the database was found corrupt: %w", err)
	}
	name := "NAME"
	if o.Peers != nil {
		name = o.Peers.Name
	}
	return corrupt(o.Dir, name, strings.TrimSpace(string(found)))
}

// comparisonMetrics are what a member shows of how its database compares with the others'.
func (s *Server) comparisonMetrics() []prometheus.Collector {
	differ := func() float64 {
		s.comparison.mu.Lock()
		defer s.comparison.mu.Unlock()
		odd := hashcheck.With(hashcheck.Odd, s.comparison.verdicts)
		return float64(len(odd) + len(hashcheck.With(hashcheck.Disputed, s.comparison.verdicts)))
	}
	same := func() float64 {
		s.comparison.mu.Lock()
		defer s.comparison.mu.Unlock()
		if s.comparison.same.IsZero() {
			return 0
		}
		return float64(s.comparison.same.Unix())
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "everynode_database_members_differing",
			Help: "How many servers have a database that differs from others', as this one last saw."}, differ),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "everynode_database_same_timestamp_seconds",
			Help: "When this server's database was last found to be the same as a majority's; 0 while it was not."},
			same),
	}
}
