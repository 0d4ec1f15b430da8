// Package election has the control loops of one of several servers work: whose, is written in a Lease, and each time is
// a turn, so that nothing is written any more that the loops of another had decided.
package election

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/server/loops"
	"github.com/everynode/everynode/internal/storage/etcd/kv"
	"github.com/everynode/everynode/internal/storage/members"
)

// A server that dies is followed after Lasts at most and one retry; one that cannot
// renew stops its loops well before.
const (
	Lasts      = 6 * time.Second
	renewBy    = 4 * time.Second
	retryAfter = 800 * time.Millisecond
	// tryFor is how long one attempt may take. A write that was under way to a database
	// that died is answered much later; the next one finds the new leader.
	tryFor = 1500 * time.Millisecond
	// considerEvery is how often a server asks whether it is to give way: while another knows more that reads all
	// objects of our own kinds.
	considerEvery = 4 * time.Second
)

// Candidate is a server whose control loops may be those that work.
type Candidate struct {
	// Name is the server's among others.
	Name string
	// API returns the way to this server's API, for the election.
	API func() *restclient.Config
	// Begin begins a turn, if the Lease of the election has this revision.
	Begin func(ctx context.Context, revision int64) (*members.Turn, error)
	// Work runs the control loops until ctx ends.
	Work func(ctx context.Context) error
	// GivesWay says why the control loops of another server are to work in place of this one's; "" if they need not. It
	// is asked again and again, also while they work.
	GivesWay func(ctx context.Context) string
}

// Run runs the control loops whenever this server is the one whose loops work,
// until ctx ends. A server that is not goes on serving the API.
func (c *Candidate) Run(ctx context.Context) error {
	config := c.API()
	config.Timeout = tryFor
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the client for the election: %w", err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: members.LoopsNamespace, Name: members.LoopsLease},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: c.Name + "_" + uuid.NewString()},
	}
	for ctx.Err() == nil {
		if !c.mayStand(ctx) {
			return nil
		}
		if err := c.lead(ctx, lock); err != nil {
			return err
		}
	}
	return nil
}

// mayStand waits until this server need not give way to another. False means that ctx ended first.
func (c *Candidate) mayStand(ctx context.Context) bool {
	said := ""
	for ctx.Err() == nil {
		why := c.GivesWay(ctx)
		if why == "" {
			return true
		}
		if why != said {
			klog.FromContext(ctx).Info("This server does not stand for election", "reason", why)
			said = why
		}
		sleep(ctx, considerEvery)
	}
	return false
}

// giveWay ends a term in which this server is to give way to another.
func (c *Candidate) giveWay(term context.Context, stop func()) {
	for {
		sleep(term, considerEvery)
		if term.Err() != nil {
			return
		}
		if why := c.GivesWay(term); why != "" {
			klog.FromContext(term).Info("The control loops of this server give way to those of another", "reason", why)
			stop()
			return
		}
	}
}

// lead waits until this server is elected, and runs the loops in a turn of theirs; see contend.
func (c *Candidate) lead(ctx context.Context, lock resourcelock.Interface) error {
	return contend(ctx, lock, func(term context.Context, stop func()) error {
		logger := klog.FromContext(ctx)
		turn, err := c.takeTurn(term, lock, stop)
		if err != nil {
			if ctx.Err() == nil {
				logger.Info("The control loops of this server do not begin to work", "reason", err.Error())
			}
			return nil
		}
		logger.Info("The control loops of this server work")
		go c.giveWay(term, stop)
		return afterTerm(ctx, term, c.Work(members.InTurn(term, turn)))
	})
}

// contend waits until the lock is this server's, and does the work until that ends, stop is called, ctx ends or the
// lock is lost, which ends term. In all four the work has stopped when it returns, and only then is the lock given up;
// if some of the work has not stopped, it is kept until it runs out.
func contend(ctx context.Context, lock resourcelock.Interface, work func(term context.Context, stop func()) error,
) error {
	candidacy, withdraw := context.WithCancel(context.WithoutCancel(ctx))
	defer withdraw()
	elected := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: Lasts, RenewDeadline: renewBy, RetryPeriod: retryAfter, Name: members.LoopsLease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(term context.Context) { elected <- term },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("set up the election: %w", err)
	}
	over, had := make(chan struct{}), false
	go func() { elector.Run(candidacy); close(over) }()
	select {
	case <-ctx.Done():
	case <-over:
	case term := <-elected:
		had = true
		term, stop := context.WithCancel(term)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		err = work(term, stop)
	}
	withdraw()
	<-over
	if had && !errors.Is(err, loops.ErrStillAtWork) {
		giveUp(ctx, lock)
	}
	return err
}

// giveUp gives the lock up if it is this server's, so that another need not wait until it runs out.
func giveUp(ctx context.Context, lock resourcelock.Interface) {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewBy)
	defer cancel()
	record, _, err := lock.Get(patient)
	if err == nil && record.HolderIdentity == lock.Identity() {
		now := metav1.Now()
		err = lock.Update(patient, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
		})
	}
	if err != nil {
		klog.FromContext(ctx).Info("The election could not be given up, and runs out", "reason", err.Error())
	}
}

// takeTurn begins a turn of this server's control loops. From then on nothing is written any
// more that the loops of another had decided, and lost is called when that becomes true of
// this server's.
func (c *Candidate) takeTurn(ctx context.Context, lock resourcelock.Interface, lost func()) (*members.Turn, error) {
	client, err := kubernetes.NewForConfig(c.API())
	if err != nil {
		return nil, fmt.Errorf("make the client for the turn: %w", err)
	}
	for ; ; sleep(ctx, retryAfter/10) {
		lease, err := client.CoordinationV1().Leases(members.LoopsNamespace).Get(ctx, members.LoopsLease, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read which server leads: %w", err)
		}
		if holder := lease.Spec.HolderIdentity; holder == nil || *holder != lock.Identity() {
			return nil, errors.New("another was elected meanwhile")
		}
		revision, err := strconv.ParseInt(lease.ResourceVersion, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the version of the election's lease: %w", err)
		}
		turn, err := c.Begin(ctx, revision)
		if errors.Is(err, kv.ErrTurnChanged) && ctx.Err() == nil {
			continue // it was renewed in between
		}
		if err != nil {
			return nil, err
		}
		turn.Lost = func() {
			klog.FromContext(ctx).Info("A write of this server's control loops was refused, since those of another work")
			lost()
		}
		return turn, nil
	}
}

// afterTerm tells what it means that the loops have ended. If the election was lost,
// this server can stand for it again, unless some of them have not stopped: they would
// work twice.
func afterTerm(ctx, term context.Context, err error) error {
	if ctx.Err() != nil || term.Err() == nil || errors.Is(err, loops.ErrStillAtWork) {
		return err
	}
	klog.FromContext(ctx).Info(
		"The control loops of this server rest: it gave way, or could not renew its lease in time; the API is served on",
	)
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
