// Package schedule makes backups of a server when they are due, and removes old ones.
package schedule

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver/clusterapi"
	"github.com/everynode/everynode/internal/storage/backup/plan"
	"github.com/everynode/everynode/internal/storage/backup/store"
)

const (
	// backupPatience bounds one backup, so that a store that hangs is not waited for.
	backupPatience = time.Hour
	// listPatience bounds asking a store what it has.
	listPatience = 5 * time.Minute
)

// Source is a server that runs.
type Source interface {
	// Take makes one backup, which the caller closes.
	Take(ctx context.Context) (clusterapi.Backup, error)
	// Disputed returns an error while what is backed up may be wrong. Then no older backup is removed for it.
	Disputed() error
}

// scheduled makes backups, one after another. Of several servers one does.
type scheduled struct {
	options Options
	store   store.Store
	// cluster tells the ID of the cluster, which a restored one has, too.
	cluster func(context.Context) (string, error)
	source  Source
	clock   clock.Clock
	events  record.EventRecorder

	success, size prometheus.Gauge
	attempts      *prometheus.CounterVec
	failures      int
}

// New returns what makes backups of a server until its context ends. metrics is nil where nobody counts.
func New(o Options, of Source, client kubernetes.Interface, events record.EventRecorder, metrics prometheus.Registerer,
) (run func(context.Context) error, err error) {
	to, err := store.Open(o.To)
	if err != nil {
		return nil, err
	}
	cluster := func(ctx context.Context) (string, error) {
		ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("find out which cluster this is: %w", err)
		}
		return string(ns.UID), nil
	}
	s := newScheduled(o, to, cluster, of, clock.RealClock{}, events)
	return s.run, s.register(metrics)
}

func newScheduled(o Options, to store.Store, cluster func(context.Context) (string, error),
	source Source, c clock.Clock, events record.EventRecorder) *scheduled {
	return &scheduled{
		options: o, store: to, cluster: cluster, source: source, clock: c, events: events,
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "everynode_backup_last_success_timestamp_seconds",
			Help: "When the newest scheduled backup that is complete was made; 0 while none is known.",
		}),
		size: prometheus.NewGauge(prometheus.GaugeOpts{Name: "everynode_backup_last_size_bytes",
			Help: "The size of the last scheduled backup that this server made."}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "everynode_backup_attempts_total", Help: "Scheduled backups that this server tried to make, by result.",
		}, []string{"result"}),
	}
}

func (s *scheduled) register(metrics prometheus.Registerer) error {
	if metrics == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{s.success, s.size, s.attempts} {
		if err := metrics.Register(c); err != nil {
			return fmt.Errorf("count backups: %w", err)
		}
	}
	return nil
}

// run makes backups until ctx ends.
func (s *scheduled) run(ctx context.Context) error {
	for ctx.Err() == nil {
		wait, err := s.once(ctx)
		if err != nil && ctx.Err() == nil {
			s.failures++
			wait = plan.Retry(s.failures, s.options.Every)
			s.attempts.WithLabelValues("failure").Inc()
			klog.FromContext(ctx).Error(err, "A scheduled backup was not made", "to", s.options.To, "failures",
				s.failures, "again", wait)
			s.events.Event(aboutTheControlPlane, corev1.EventTypeWarning, "BackupFailed",
				"A scheduled backup was not made: "+err.Error())
		} else if err == nil {
			s.failures = 0
		}
		select {
		case <-ctx.Done():
		case <-s.clock.After(wait):
		}
	}
	return nil
}

// aboutTheControlPlane is what events are about that concern no object.
var aboutTheControlPlane = &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: metav1.NamespaceSystem,
	Namespace: metav1.NamespaceSystem}

// once makes a backup if one is due, and returns how long it is until the next.
func (s *scheduled) once(ctx context.Context) (wait time.Duration, err error) {
	asking, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	cluster, err := s.cluster(asking)
	if err != nil {
		return 0, err
	}
	names, err := s.store.Names(asking)
	if err != nil {
		return 0, err
	}
	names = plan.Of(cluster, names)
	if newest := plan.Newest(names); !newest.IsZero() {
		s.success.Set(float64(newest.Unix()))
	}
	if wait := plan.Wait(plan.Newest(names), s.clock.Now(), s.options.Every); wait > 0 {
		return wait, nil
	}
	attempt, cancel := context.WithTimeout(ctx, backupPatience)
	defer cancel()
	made, err := s.save(attempt, cluster)
	if err != nil {
		return 0, err
	}
	s.attempts.WithLabelValues("success").Inc()
	err = s.source.Disputed()
	if err != nil {
		klog.FromContext(ctx).Error(err, "No old backup is removed", "to", s.options.To)
		return s.options.Every, nil
	}
	// What cannot be removed is in nobody's way but the disk's; the backup is made.
	for _, old := range plan.Expired(append(names, made), made, s.options.Keep, s.clock.Now()) {
		if err := s.store.Remove(attempt, old); err != nil {
			klog.FromContext(ctx).Error(err, "An old backup was not removed", "backup", old, "to", s.options.To)
		}
	}
	return s.options.Every, nil
}

// save makes a backup, and returns its name when it is there for good.
func (s *scheduled) save(ctx context.Context, cluster string) (name string, err error) {
	lock, err := s.options.lock()
	if err != nil {
		return "", err
	}
	taken, err := s.source.Take(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = taken.Close() }() // it is gone in any case
	m := taken.Manifest()
	name = plan.Name(cluster, m.Created, m.Revision)
	size, err := s.store.Put(ctx, name, func(w io.Writer) error { return taken.Write(w, lock) })
	if err != nil {
		return "", err
	}
	s.success.Set(float64(m.Created.Unix()))
	s.size.Set(float64(size))
	klog.FromContext(ctx).Info("A scheduled backup is made", "backup", name, "to", s.options.To, "bytes", size)
	return name, nil
}
