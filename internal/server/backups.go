package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/backup"
	"github.com/everynode/everynode/internal/backup/plan"
	"github.com/everynode/everynode/internal/backup/store"
)

// BackupOptions say when backups are made without anybody asking; the zero value is never.
type BackupOptions struct {
	// Every is the time between two backups.
	Every time.Duration
	// To is where they go: a folder, or s3://BUCKET/PREFIX.
	To string
	// Keep is how many stay.
	Keep int
	// KeyFile holds the keys with which they are encrypted. Public halves are enough.
	KeyFile string
}

const (
	// mostFrequent is the least time between two backups.
	mostFrequent = time.Minute
	// backupPatience bounds one backup, so that a store that hangs is not waited for.
	backupPatience = time.Hour
	// listPatience bounds asking a store what it has.
	listPatience = 5 * time.Minute
)

// check says what is wrong with the options.
func (o BackupOptions) check() error {
	if o.Every == 0 {
		if o.To != "" || o.KeyFile != "" {
			return errors.New("backups are to go somewhere, and are never made; say how often with --backup-schedule, such as 6h")
		}
		return nil
	}
	if o.Every < mostFrequent {
		return fmt.Errorf("--backup-schedule %s: %s is the least", o.Every, mostFrequent)
	}
	if o.Keep < 1 {
		return fmt.Errorf("--backup-keep %d: at least one backup stays", o.Keep)
	}
	if _, err := store.Open(o.To); err != nil {
		return fmt.Errorf("--backup-dir: %w", err)
	}
	if o.KeyFile == "" {
		return errors.New("a backup holds all keys of the cluster, so it is encrypted; give the public key of \"everynode backup key\" with --backup-key-file")
	}
	_, err := o.lock()
	return err
}

func (o BackupOptions) lock() (backup.Lock, error) {
	content, err := os.ReadFile(o.KeyFile)
	if err != nil {
		return backup.Lock{}, fmt.Errorf("--backup-key-file: %w", err)
	}
	lock, err := backup.Keys(content)
	if err != nil {
		return lock, fmt.Errorf("--backup-key-file %s: %w", o.KeyFile, err)
	}
	return lock, nil
}

// scheduled makes backups, one after another. Of several servers one does.
type scheduled struct {
	options BackupOptions
	store   store.Store
	// cluster tells the ID of the cluster, which a restored one has, too.
	cluster func(context.Context) (string, error)
	take    func(context.Context) (*snapshot, error)
	clock   clock.Clock
	events  record.EventRecorder
	// disputed is an error while what is backed up may be wrong. Then no older backup is removed for it.
	disputed func() error

	success, size prometheus.Gauge
	attempts      *prometheus.CounterVec
	failures      int
}

// scheduleBackups returns what makes backups of this server until its context ends.
func (s *Server) scheduleBackups(client kubernetes.Interface, events record.EventRecorder,
	metrics prometheus.Registerer,
) (run func(context.Context) error, err error) {
	to, err := store.Open(s.options.Backups.To)
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
	b := newScheduled(s.options.Backups, to, cluster, s.take, clock.RealClock{}, events)
	b.disputed = s.etcd.Disputed
	return b.run, b.register(metrics)
}

func newScheduled(o BackupOptions, to store.Store, cluster func(context.Context) (string, error),
	take func(context.Context) (*snapshot, error), c clock.Clock, events record.EventRecorder) *scheduled {
	return &scheduled{
		options: o, store: to, cluster: cluster, take: take, clock: c, events: events,
		disputed: func() error { return nil },
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
	err = s.disputed()
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
	taken, err := s.take(ctx)
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
