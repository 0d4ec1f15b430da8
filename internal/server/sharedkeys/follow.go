package sharedkeys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/internal/storage/members"
)

// interval is how often a server looks whether files were replaced, here or elsewhere.
const interval = time.Second

// Patience bounds one look.
const Patience = 10 * time.Second

// Files is a set of files that all servers have alike.
type Files struct {
	// Which is what the servers call it.
	Which etcd.Shared
	// Export reads what this server has. It fails with ErrHalf while somebody replaces files by
	// hand, and with ErrDamaged if the server would not start with them.
	Export  func() ([]byte, error)
	dataDir string
	// hash is what servers compare.
	hash func(content []byte) string
	// check says what is wrong with files of another server, and adopt puts them in the place of
	// those of this one.
	check, adopt func(content []byte) error
	// replacedHere and took are for the log.
	replacedHere, took string
	// byHand says what to do when files were replaced on two servers.
	byHand string
}

// Database is where servers tell each other what they are to have. *etcd.Server is one.
type Database interface {
	// Agreed returns the hash of what all are to have; empty if nobody has told yet.
	Agreed(ctx context.Context, which etcd.Shared) (hash string, revision int64, err error)
	// Agree tells it, unless another has since the revision.
	Agree(ctx context.Context, which etcd.Shared, hash string, revision int64) (done bool, err error)
	// AskShared asks the other servers until take takes what one of them has. It fails with etcd.ErrNobodyHas if all
	// have answered.
	AskShared(ctx context.Context, which etcd.Shared, take func(content []byte) (taken bool, err error)) error
}

// Memory is what a server knows of files, and knows again when it has been started again. It is locked while the
// servers are changed, and must be to use it.
type Memory interface {
	sync.Locker
	// Shared returns the hash that all servers had when this one last looked, and that which it began to take.
	Shared(which etcd.Shared) (agreed, begun string)
	// NoteShared remembers them.
	NoteShared(which etcd.Shared, agreed, begun string) error
}

// Follower has one server have the files that all have.
type Follower struct {
	Files
	database Database
	memory   Memory
	clock    clock.PassiveClock

	// missed is what all servers are to have and none has, and since when; memory guards them.
	missed string
	since  time.Time
}

// NewFollower returns the follower of files.
func NewFollower(f Files, database Database, memory Memory, c clock.PassiveClock) *Follower {
	return &Follower{Files: f, database: database, memory: memory, clock: c}
}

// Follow looks until ctx ends: what is replaced on one server, the others take from it, over the connection between
// their databases. A look ends at the first of its parts that fails.
func Follow(ctx context.Context, parts ...func(context.Context) error) error {
	said := ""
	for {
		attempt, cancel := context.WithTimeout(ctx, Patience)
		var err error
		for _, look := range parts {
			if err == nil {
				err = look(attempt)
			}
		}
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			klog.FromContext(ctx).Error(err, "This server may have other keys than the others")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// Look tells the others of what was replaced here, or takes what was replaced elsewhere.
func (f *Follower) Look(ctx context.Context) error {
	content, err := f.Export()
	f.memory.Lock()
	_, remembered := f.memory.Shared(f.Which)
	f.memory.Unlock()
	switch half := errors.Is(err, ErrHalf); {
	case err == nil, remembered != "" && (half || errors.Is(err, ErrDamaged)): // those that it began to take come again
	case half:
		return nil // the next look sees all of them
	default:
		return err
	}
	all, revision, err := f.database.Agreed(ctx, f.Which)
	if err != nil {
		return err
	}
	f.memory.Lock()
	defer f.memory.Unlock()
	here := members.KeysHere{Own: f.hash(content)}
	here.Agreed, here.Begun = f.memory.Shared(f.Which)
	switch here.Decide(all) {
	case members.Note:
		return f.note(all, "")
	case members.Publish:
		done, err := f.database.Agree(ctx, f.Which, here.Own, revision)
		if err != nil || !done {
			return err
		}
		if here.Agreed != "" {
			klog.FromContext(ctx).Info(f.replacedHere)
		}
		return f.note(here.Own, "")
	case members.Take:
		return f.unlessLost(ctx, here, all, revision, f.take(ctx, here, all))
	case members.Dispute:
		err := f.database.AskShared(ctx, f.Which, func(content []byte) (bool, error) { return f.hash(content) == all, nil })
		if !errors.Is(err, etcd.ErrNobodyHas) {
			err = nil
		}
		return f.unlessLost(ctx, here, all, revision, cmp.Or(err, errors.New(f.byHand)))
	}
	return nil
}

func (f *Follower) note(agreed, begun string) error {
	return f.memory.NoteShared(f.Which, agreed, begun)
}

// lostAfter is for how long nobody may have what all are to have before that is given up. One
// that replaces files one after another has, for seconds, others than it has told.
const lostAfter = time.Minute

// patienceOf is how long a server waits. One that was cut off while it took what nobody has may have
// some of the one and some of the other: those that were not come first.
func patienceOf(here members.KeysHere) time.Duration {
	if here.Begun != "" {
		return 2 * lostAfter
	}
	return lostAfter
}

// unlessLost has all servers have what this one has, where nobody has what was told last: who told
// it is gone, with its disk. Before, every server that belongs to the cluster must have answered
// for a while.
func (f *Follower) unlessLost(ctx context.Context, here members.KeysHere, all string, revision int64, err error) error {
	if !errors.Is(err, etcd.ErrNobodyHas) {
		f.missed = ""
		return err
	}
	if f.missed != all {
		f.missed, f.since = all, f.clock.Now()
	}
	if patience := patienceOf(here); f.clock.Since(f.since) < patience {
		return fmt.Errorf("%w; if that stays so for %v, those of this server count", err, patience)
	}
	if _, unusable := f.Export(); unusable != nil {
		return fmt.Errorf("%w, and those of this server cannot be used: restore %s from a backup: %w",
			err, f.dataDir, unusable)
	}
	done, err := f.database.Agree(ctx, f.Which, here.Own, revision)
	if err != nil || !done {
		return err
	}
	klog.FromContext(ctx).Info("The server that replaced keys last is gone, and no other has them: "+
		"those of this server count", "keys", f.Which)
	return f.note(here.Own, "")
}

// take replaces the files of this server. The caller holds the memory.
func (f *Follower) take(ctx context.Context, here members.KeysHere, all string) error {
	return f.database.AskShared(ctx, f.Which, func(content []byte) (bool, error) {
		if f.hash(content) != all {
			return false, nil // another that has not got them yet
		}
		err := f.check(content)
		if err != nil {
			return false, fmt.Errorf("the keys of another server cannot be used, and are not taken: %w", err)
		}
		err = f.note(here.Agreed, all)
		if err == nil {
			err = f.adopt(content)
		}
		if err != nil {
			return false, err
		}
		klog.FromContext(ctx).Info(f.took)
		return true, f.note(all, "")
	})
}
