package server

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver/bootstrap"
	"github.com/everynode/everynode/internal/etcd/kv"
	"github.com/everynode/everynode/internal/members"
	"github.com/everynode/everynode/internal/server/backups/schedule"
	"github.com/everynode/everynode/internal/server/loops"
)

// Where it is written whose control loops work.
const (
	loopsNamespace = metav1.NamespaceSystem
	loopsLease     = "everynode-controllers"
)

// A server that dies is followed after loopsFor at most and one retry; one that cannot
// renew stops its loops well before.
const (
	loopsFor   = 6 * time.Second
	loopsRenew = 4 * time.Second
	loopsRetry = 800 * time.Millisecond
	// loopsTry is how long one attempt may take. A write that was under way to a database
	// that died is answered much later; the next one finds the new leader.
	loopsTry = 1500 * time.Millisecond
)

// work runs the control loops until ctx ends.
func (s *Server) work(ctx context.Context) error {
	metrics := &lent{Registerer: s.options.Metrics}
	defer metrics.takeBack()
	return loops.Run(ctx, s.loops(metrics.orNil()))
}

// loops is what the control loops work with.
func (s *Server) loops(metrics prometheus.Registerer) loops.Config {
	o := &s.options
	c := loops.Config{
		API: s.api, PKI: s.pki, Service: s.service, Pods: s.pods, Restored: s.restored != "",
		SigningDuration: o.SigningDuration, NoDaemonSetController: o.NoDaemonSetController,
		RecordDecisions: o.RecordDecisions, SimulatedNodes: o.SimulatedNodes, Faults: o.Faults, Metrics: metrics,
	}
	if o.Backups.Every > 0 {
		c.Backups = func(client kubernetes.Interface, events record.EventRecorder, metrics prometheus.Registerer,
		) (func(context.Context) error, error) {
			return schedule.New(o.Backups, backedUp{s}, client, events, metrics)
		}
	}
	return c
}

// runElected runs the control loops whenever this server is the one whose loops work,
// until ctx ends. A server that is not goes on serving the API.
func (s *Server) runElected(ctx context.Context) error {
	config := s.api.ConfigFor(bootstrap.ManagerAccount())
	config.Timeout = loopsTry
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the client for the election: %w", err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: loopsNamespace, Name: loopsLease}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: s.name() + "_" + uuid.NewString()},
	}
	for ctx.Err() == nil {
		if err := s.lead(ctx, lock); err != nil {
			return err
		}
	}
	return nil
}

// lead waits until this server is elected, and runs the loops in a turn of theirs; see contend.
func (s *Server) lead(ctx context.Context, lock resourcelock.Interface) error {
	return contend(ctx, lock, func(term context.Context, stop func()) error {
		logger := klog.FromContext(ctx)
		turn, err := s.takeTurn(term, lock, stop)
		if err != nil {
			if ctx.Err() == nil {
				logger.Info("The control loops of this server do not begin to work", "reason", err.Error())
			}
			return nil
		}
		logger.Info("The control loops of this server work")
		return afterTerm(ctx, term, s.work(members.InTurn(term, turn)))
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
		Lock: lock, LeaseDuration: loopsFor, RenewDeadline: loopsRenew, RetryPeriod: loopsRetry, Name: loopsLease,
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
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), loopsRenew)
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
func (s *Server) takeTurn(ctx context.Context, lock resourcelock.Interface, lost func()) (*members.Turn, error) {
	client, err := kubernetes.NewForConfig(s.api.ConfigFor(bootstrap.ManagerAccount()))
	if err != nil {
		return nil, fmt.Errorf("make the client for the turn: %w", err)
	}
	for ; ; sleep(ctx, loopsRetry/10) {
		lease, err := client.CoordinationV1().Leases(loopsNamespace).Get(ctx, loopsLease, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read whose turn it is: %w", err)
		}
		if holder := lease.Spec.HolderIdentity; holder == nil || *holder != lock.Identity() {
			return nil, errors.New("another was elected meanwhile")
		}
		revision, err := strconv.ParseInt(lease.ResourceVersion, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the version of the election's lease: %w", err)
		}
		turn, err := s.beginTurn(ctx, revision)
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

func (s *Server) beginTurn(ctx context.Context, revision int64) (*members.Turn, error) {
	if s.external != nil {
		return s.external.TakeTurn(ctx, s.name(), s.loopsLeaseKey(), revision)
	}
	return s.etcd.TakeTurn(ctx, s.loopsLeaseKey(), revision)
}

// afterTerm tells what it means that the loops have ended. If the election was lost,
// this server can stand for it again, unless some of them have not stopped: they would
// work twice.
func afterTerm(ctx, term context.Context, err error) error {
	if ctx.Err() != nil || term.Err() == nil || errors.Is(err, loops.ErrStillAtWork) {
		return err
	}
	klog.FromContext(ctx).Info("The control loops of this server rest: it could not renew its lease in time; the API is served on")
	return nil
}

// loopsLeaseKey is where the election's Lease is in the database.
func (s *Server) loopsLeaseKey() string {
	return path.Join(s.settings.Etcd.StorageConfig.Prefix, coordinationv1.GroupName, "leases", loopsNamespace,
		loopsLease)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// lent registers metrics until they are taken back.
type lent struct {
	prometheus.Registerer
	mu         sync.Mutex // guards registered
	registered []prometheus.Collector
}

// orNil is nil for a registry that is none.
func (l *lent) orNil() prometheus.Registerer {
	if l.Registerer == nil {
		return nil
	}
	return l
}

// Register implements prometheus.Registerer.
func (l *lent) Register(c prometheus.Collector) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.Registerer.Register(c)
	if err == nil {
		l.registered = append(l.registered, c)
	}
	return err
}

// MustRegister implements prometheus.Registerer.
func (l *lent) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := l.Register(c); err != nil {
			panic(err)
		}
	}
}

func (l *lent) takeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.registered {
		l.Unregister(c)
	}
	l.registered = nil
}
