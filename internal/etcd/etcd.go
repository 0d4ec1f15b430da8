// Package etcd runs the embedded etcd that holds the cluster's state, and opens
// API storage on it without going through a socket.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkube "go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// keptRevisions is how many revisions stay readable for watches that resume.
const keptRevisions = "20000"

// Options says where and how the embedded etcd runs.
type Options struct {
	// Dir holds the database; it is made when missing.
	Dir string
	// NoFsync trades durability for speed. Tests only.
	NoFsync bool
	// StartTimeout is how long Start waits for the database to be ready, 3 minutes by default.
	StartTimeout time.Duration
}

// Server is a running embedded etcd with one member and no listener.
type Server struct {
	etcd  *embed.Etcd
	fatal *fatal

	mu      sync.Mutex // guards clients
	clients []*clientv3.Client
}

// Start opens the database and waits until it takes writes. A database that
// cannot be read is reported and left as it is.
func Start(ctx context.Context, o Options) (*Server, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the database directory: %w; choose another --data-dir, or move what is there away", err)
	}
	if err := checkData(o.Dir); err != nil {
		return nil, err
	}
	f := &fatal{failed: make(chan error, 1)}
	cfg, err := config(o, f)
	if err != nil {
		return nil, err
	}
	e, err := start(cfg, f)
	if errors.Is(err, syscall.ENOSPC) {
		return nil, fmt.Errorf("open the database in %s: %w", o.Dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the database in %s: %w"+backupHint, o.Dir, err)
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = 3 * time.Minute
	}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-f.failed:
		return nil, err
	case err := <-e.Err():
		e.Close()
		return nil, fmt.Errorf("start the database in %s: %w", o.Dir, err)
	case <-ctx.Done():
		e.Close()
		return nil, ctx.Err()
	case <-time.After(o.StartTimeout):
		e.Close()
		return nil, fmt.Errorf("start the database in %s: not ready after %v; is the disk full or very slow?", o.Dir, o.StartTimeout)
	}
	s := &Server{etcd: e, fatal: f}
	if err := s.announceFeatures(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// announceFeatures lets the API's storage layer know that this etcd reports
// watch progress on request. Without that, caches could not prove that they are
// fresh, and reads and watches would wait for it in vain.
func (s *Server) announceFeatures(ctx context.Context) error {
	feature.DefaultFeatureSupportChecker.CheckClient(ctx, embedded{s.newClient().Client}, storage.RequestWatchProgress)
	for deadline := time.Now().Add(time.Minute); !feature.DefaultFeatureSupportChecker.Supports(storage.RequestWatchProgress); {
		if time.Now().After(deadline) {
			return errors.New("ask the database for its features: no answer")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// embedded gives the etcd that has no address a name, for those who list etcds by address.
type embedded struct{ *clientv3.Client }

func (embedded) Endpoints() []string { return []string{"embedded"} }

func (e embedded) Status(ctx context.Context, _ string) (*clientv3.StatusResponse, error) {
	return e.Maintenance.Status(ctx, "")
}

// start opens the database. What ends etcd meanwhile, on whatever goroutine,
// becomes an error.
func start(cfg *embed.Config, f *fatal) (*embed.Etcd, error) {
	type outcome struct {
		etcd *embed.Etcd
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() { done <- o }()
		defer recoverInto(&o.err)
		o.etcd, o.err = embed.StartEtcd(cfg)
	}()
	select {
	case o := <-done:
		return o.etcd, o.err
	case err := <-f.failed:
		return nil, err
	}
}

func config(o Options, f *fatal) (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Dir = o.Dir
	cfg.UnsafeNoFsync = o.NoFsync
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, keptRevisions
	cfg.QuotaBackendBytes, cfg.MaxTxnOps = 8<<30, maxTxnOps
	// A single member elects itself; short ticks only make it start sooner.
	cfg.TickMs, cfg.ElectionMs = 20, 200
	// Nobody connects: the API server calls the member in process.
	name, err := url.Parse("http://everynode.invalid:2380")
	if err != nil {
		return nil, err
	}
	cfg.ListenPeerUrls, cfg.ListenClientUrls = nil, nil
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{*name}, []url.URL{*name}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	logs := zap.NewProductionConfig()
	logs.Level = zap.NewAtomicLevelAt(zapcore.ErrorLevel)
	logger, err := logs.Build(zap.WithFatalHook(f), zap.WithPanicHook(f), zap.WrapCore(func(c zapcore.Core) zapcore.Core { return quiet{c} }))
	if err != nil {
		return nil, fmt.Errorf("make the database's logger: %w", err)
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	return cfg, nil
}

// newClient returns a client with a stream of its own for its watches, so that
// what one resource's watches ask for is no work for those of others.
func (s *Server) newClient() *etcdkube.Client {
	client := &etcdkube.Client{Client: inProcess(s.etcd.Server)}
	client.Kubernetes = client
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, client.Client)
	return client
}

// Open returns the storage of one resource.
func (s *Server) Open(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, resourcePrefix string) (storage.Interface, error) {
	return open(s.newClient(), c, newObject, newList, resourcePrefix)
}

func open(client *etcdkube.Client, c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, resourcePrefix string) (storage.Interface, error) {
	return openWith(client, c, newObject, newList, resourcePrefix, etcd3.NewDefaultDecoder(c.Codec, storage.APIObjectVersioner{}))
}

func openWith(client *etcdkube.Client, c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, resourcePrefix string,
	decoder etcd3.Decoder) (storage.Interface, error) {
	transformer := c.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	opened, err := etcd3.New(client, noCompactor{}, c.Codec, newObject, newList, c.Prefix, resourcePrefix, c.GroupResource,
		transformer, c.LeaseManagerConfig, decoder, storage.APIObjectVersioner{})
	if err != nil {
		return nil, fmt.Errorf("open storage of %s: %w", c.GroupResource, err)
	}
	return opened, nil
}

// OpenReserving returns the storage of a resource whose objects hold names, a *Reserving.
func (s *Server) OpenReserving(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, resourcePrefix string,
	holds func(runtime.Object) (holder string, names []string)) (storage.Interface, error) {
	return openReserving(s.newClient(), c, newObject, newList, resourcePrefix, holds)
}

// noCompactor tells the storage layer that it need not track compactions: the
// member compacts by itself.
type noCompactor struct{}

func (noCompactor) CompactRevision() int64 { return 0 }

// Failed returns why the running database stopped, or nil once ctx has ended.
func (s *Server) Failed(ctx context.Context) error {
	select {
	case err := <-s.etcd.Err():
		return err
	case err := <-s.fatal.failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Close stops the database; everything acknowledged is on disk.
func (s *Server) Close() {
	if s.fatal.happened.Load() {
		return // it holds its own locks, and ends with the process
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, client := range s.clients {
		_ = client.Close()
	}
	s.etcd.Close()
}
