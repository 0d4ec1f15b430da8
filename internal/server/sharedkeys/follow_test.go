package sharedkeys

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/storage/etcd"
)

// others are the other servers of one whose files are their own hash.
type others struct {
	sync.Mutex
	// here are the files of this server, has what another server has.
	here, has string
	// all is what all are to have; agreed and begun are what this server knows.
	all, agreed, begun string
}

func (o *others) Agreed(context.Context, etcd.Shared) (string, int64, error) { return o.all, 1, nil }

func (o *others) Agree(_ context.Context, _ etcd.Shared, hash string, _ int64) (bool, error) {
	o.all = hash
	return true, nil
}

func (o *others) AskShared(_ context.Context, _ etcd.Shared, take func([]byte) (bool, error)) error {
	taken, err := take([]byte(o.has))
	if err == nil && !taken {
		err = etcd.ErrNobodyHas
	}
	return err
}

func (o *others) Shared(etcd.Shared) (agreed, begun string) { return o.agreed, o.begun }

func (o *others) NoteShared(_ etcd.Shared, agreed, begun string) error {
	o.agreed, o.begun = agreed, begun
	return nil
}

func (o *others) files() Files {
	return Files{
		Export: func() ([]byte, error) { return []byte(o.here), nil },
		hash:   func(content []byte) string { return string(content) },
		check:  func([]byte) error { return nil },
		adopt: func(content []byte) error {
			o.here = string(content)
			return nil
		},
		byHand: "both were replaced",
	}
}

// What nobody has is waited for a while: twice as long where this server was cut off while it took that.
func TestWhatNobodyHasIsGivenUp(t *testing.T) {
	for begun, patience := range map[string]time.Duration{"": lostAfter, "lost": 2 * lostAfter} {
		o := &others{here: "ours", has: "ours", all: "lost", agreed: "ours", begun: begun}
		c := testclock.NewFakePassiveClock(time.Unix(0, 0))
		f := NewFollower(o.files(), o, o, c)
		for _, at := range []time.Duration{0, patience - time.Second} {
			c.SetTime(time.Unix(0, 0).Add(at))
			if err := f.Look(t.Context()); !errors.Is(err, etcd.ErrNobodyHas) || o.all != "lost" {
				t.Errorf("begun %q, after %v: all are to have %q, %v", begun, at, o.all, err)
			}
		}
		c.SetTime(time.Unix(0, 0).Add(patience))
		if err := f.Look(t.Context()); err != nil || o.all != "ours" || o.agreed != "ours" || o.begun != "" {
			t.Errorf("begun %q, after %v: %v, %+v", begun, patience, err, o)
		}
	}
}

// What another server has is taken; what was replaced on two servers is left to the operator.
func TestWhatSomebodyHasIsTaken(t *testing.T) {
	o := &others{here: "ours", has: "ours", all: "new", agreed: "ours"}
	c := testclock.NewFakePassiveClock(time.Unix(0, 0))
	f := NewFollower(o.files(), o, o, c)
	if err := f.Look(t.Context()); !errors.Is(err, etcd.ErrNobodyHas) {
		t.Errorf("nobody has it: %v", err)
	}
	o.has = "new"
	c.SetTime(time.Unix(0, 0).Add(time.Hour))
	if err := f.Look(t.Context()); err != nil || o.here != "new" || o.agreed != "new" || o.begun != "" {
		t.Errorf("another has it: %v, %+v", err, o)
	}
	o.here, o.all = "replaced here", "replaced there"
	if err := f.Look(t.Context()); err == nil || o.here != "replaced here" || o.all != "replaced there" {
		t.Errorf("it was replaced on two servers: %v, %+v", err, o)
	}
}
