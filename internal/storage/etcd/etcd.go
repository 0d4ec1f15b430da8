// Package etcd runs the embedded etcd that holds the cluster's state, and opens
// API storage on it without going through a socket.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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

	"github.com/everynode/everynode/internal/storage/etcd/apistorage"
	"github.com/everynode/everynode/internal/storage/etcd/kv"
	"github.com/everynode/everynode/internal/storage/etcd/offline"
)

// keptRevisions is how many revisions stay readable for watches that resume.
const keptRevisions = 20000

// keptAlone is how many of the last writes a database that is alone keeps in memory. Only
// other members, which may be behind, ask for more.
const keptAlone = 100

// Options says where and how the embedded etcd runs.
type Options struct {
	// Dir holds the database; it is made when missing.
	Dir string
	// NoFsync trades durability for speed. Tests only.
	NoFsync bool
	// StartTimeout is how long Start waits for the database to be ready, 3 minutes by
	// default. One of several waits for a majority, however long.
	StartTimeout time.Duration
	// Peers makes the database one of several; nil is one that is alone.
	Peers *Peers
	// Keep is how long a revision stays readable at least, if no great number of others follows; 5 minutes if zero.
	Keep time.Duration
	// Writer names who writes in a context, each of whom has a share of what can be written; empty for one who may
	// write as much as there is room. Without it all may.
	Writer func(context.Context) string
	// share is how many bytes one writer may write in a minute; defaultShare if zero.
	share int64
	// quota is the size of the file, in bytes, at which writes end; 8 GiB if zero, none if negative.
	quota int64
	// compareEvery is how often hashes are compared with those of other members; compareInterval if zero.
	compareEvery time.Duration
	// forgetOthers opens a copy of the database of one of several as one that is alone.
	forgetOthers bool
}

// Server is a running embedded etcd: alone and without a listener, or one of several.
type Server struct {
	etcd       *embed.Etcd
	fatal      *fatal
	leadership *leadership
	shares     *kv.Shares // nil if all may write as much as there is room

	// peers and all below are nil for one that is alone.
	peers      *Peers
	comparison comparison
	door       *door
	watermarks *clientv3.Client
	end        context.CancelFunc
	serving    atomic.Bool
	// defragmenting is set while this member rewrites its file, and before that while it asks the others.
	defragmenting atomic.Bool

	mu      sync.Mutex // guards clients
	clients []*clientv3.Client
}

// Start opens the database and waits until it takes writes. A database that
// cannot be read is reported and left as it is.
func Start(ctx context.Context, o Options) (*Server, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the database directory: %w; choose another --data-dir, or move what is there away",
			err)
	}
	err := checkCorrupt(o)
	if err != nil {
		return nil, err
	}
	has, err := offline.Check(o.Dir)
	switch {
	case err != nil:
	case has.Removed():
		err = ErrRemoved // also of a copy, and as the only one: it can lead nobody, not even itself
	case o.Peers == nil:
		err = has.CheckEnd(o.Dir)
	}
	if err != nil {
		return nil, err
	}
	s := &Server{peers: o.Peers, leadership: newLeadership(), end: func() {}}
	if o.Writer != nil {
		s.shares = kv.NewShares(o.Writer, cmp.Or(o.share, defaultShare))
	}
	if o.Peers != nil {
		s.door, err = openFor(ctx, o, has)
		if err != nil {
			return nil, err
		}
	}
	if err := s.open(o); err != nil {
		s.door.close()
		return nil, err
	}
	if err := s.begin(ctx, o); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// openFor opens the port for the other members, and waits until it is clear that this one may start.
func openFor(ctx context.Context, o Options, has offline.Data) (*door, error) {
	b := &before{peers: o.Peers, dir: o.Dir, has: has}
	d, err := openDoor(o.Peers, b.handler())
	if err == nil {
		err = b.wait(ctx)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (s *Server) open(o Options) error {
	s.fatal = newFatal()
	cfg, err := config(o, s.fatal)
	if err != nil {
		return err
	}
	s.etcd, err = start(cfg, s.fatal)
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("open the database in %s: %w", o.Dir, err)
	}
	if err != nil {
		return fmt.Errorf("open the database in %s: %w"+offline.BackupHint, o.Dir, err)
	}
	return nil
}

// begin has the opened database take part.
func (s *Server) begin(ctx context.Context, o Options) error {
	if s.peers != nil {
		s.watermarks = s.newClient().Client
		s.servePeers()
	}
	if err := s.waitReady(ctx, o); err != nil {
		return err
	}
	var life context.Context
	life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	return s.During(func() error {
		if s.peers != nil {
			err := s.become(ctx, s.peers.URL)
			if err != nil {
				return err
			}
			go s.keepWatermark(life)
			go s.followLeader(life)
			go s.keepComparing(life, cmp.Or(o.compareEvery, compareInterval))
		}
		s.compactAtStart(life)
		go s.forgetOld(life, cmp.Or(o.Keep, defaultKeep))
		go s.keepSpace(life)
		return s.announceFeatures(ctx)
	})
}

// waitReady waits until the database takes writes.
func (s *Server) waitReady(ctx context.Context, o Options) error {
	if o.StartTimeout == 0 {
		o.StartTimeout = 3 * time.Minute
	}
	late := time.After(o.StartTimeout)
	var remind <-chan time.Time
	if o.Peers != nil {
		ticker := time.NewTicker(waitReminder)
		defer ticker.Stop()
		late, remind = nil, ticker.C
	}
	for {
		select {
		case <-s.etcd.Server.ReadyNotify():
			return nil
		case err := <-s.fatal.failed:
			return s.explain(err)
		case err := <-s.etcd.Err():
			return fmt.Errorf("start the database in %s: %w", o.Dir, err)
		case <-s.etcd.Server.StopNotify():
			return s.stopped(ctx)
		case <-ctx.Done():
			return ctx.Err()
		case <-remind:
			s.tellWaiting(ctx)
		case <-late:
			return fmt.Errorf("start the database in %s: not ready after %v; is the disk full or very slow?", o.Dir,
				o.StartTimeout)
		}
	}
}

// announceFeatures lets the API's storage layer know that this etcd reports
// watch progress on request. Without that, caches could not prove that they are
// fresh, and reads and watches would wait for it in vain.
func (s *Server) announceFeatures(ctx context.Context) error {
	feature.DefaultFeatureSupportChecker.CheckClient(ctx, embedded{s.newClient().Client}, storage.RequestWatchProgress)
	for deadline := time.Now().Add(time.Minute); !feature.DefaultFeatureSupportChecker.Supports(
		storage.RequestWatchProgress,
	); {
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
		defer offline.RecoverInto(&o.err)
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
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, strconv.Itoa(keptRevisions)
	cfg.QuotaBackendBytes, cfg.MaxTxnOps = cmp.Or(o.quota, defaultQuota), apistorage.MaxTxnOps+1 // one for a turn
	if err := membersOf(cfg, o); err != nil {
		return nil, err
	}
	logs := zap.NewProductionConfig()
	logs.Level = zap.NewAtomicLevelAt(zapcore.ErrorLevel)
	logger, err := logs.Build(zap.WithFatalHook(f), zap.WithPanicHook(f),
		zap.WrapCore(func(c zapcore.Core) zapcore.Core { return quiet{c} }))
	if err != nil {
		return nil, fmt.Errorf("make the database's logger: %w", err)
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	return cfg, nil
}

// membersOf says whether the database is alone or who belongs to it.
func membersOf(cfg *embed.Config, o Options) error {
	// A single member elects itself; short ticks only make it start sooner.
	cfg.TickMs, cfg.ElectionMs = 20, 200
	// Nobody connects: the API server calls the member in process, and the port for
	// other members is opened beside etcd.
	cfg.ListenPeerUrls, cfg.ListenClientUrls = nil, nil
	name, err := url.Parse("http://everynode.invalid:2380")
	if err != nil {
		return err
	}
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{*name}, []url.URL{*name}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ForceNewCluster = o.forgetOthers
	if o.Peers == nil {
		cfg.SnapshotCatchUpEntries = keptAlone
		return nil
	}
	p := o.Peers
	if name, err = url.Parse(p.URL); err != nil {
		return fmt.Errorf("read the address of this server for the others: %w", err)
	}
	cfg.TickMs, cfg.ElectionMs = 100, 1000
	cfg.Name, cfg.AdvertisePeerUrls = p.Name, []url.URL{*name}
	cfg.PeerTLSInfo.TrustedCAFile, cfg.PeerTLSInfo.CertFile, cfg.PeerTLSInfo.KeyFile = p.Keys.Files()
	cfg.InitialCluster = p.Name + "=" + p.URL
	if len(p.Known) > 0 {
		cfg.InitialCluster, cfg.ClusterState = initialCluster(p.Known, p.Name, p.URL), embed.ClusterStateFlagExisting
	}
	return nil
}

// newClient returns a client with a stream of its own for its watches, so that
// what one resource's watches ask for is no work for those of others.
func (s *Server) newClient() *etcdkube.Client {
	client := &etcdkube.Client{Client: inProcess(s.etcd.Server, s.leadership)}
	client.KV = kv.Steady{KV: client.KV, Serving: s.serving.Load}
	if s.peers != nil {
		client.KV = kv.InTurns(client.KV)
	}
	if s.shares != nil {
		client.KV = s.shares.Limit(client.KV)
	}
	client.Kubernetes = client
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, client.Client)
	return client
}

// drop closes a client before the database is closed.
func (s *Server) drop(client *clientv3.Client) {
	s.mu.Lock()
	s.clients = slices.DeleteFunc(s.clients, func(c *clientv3.Client) bool { return c == client })
	s.mu.Unlock()
	_ = client.Close()
}

// Open returns the storage of one resource.
func (s *Server) Open(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object,
	resourcePrefix string) (storage.Interface, error) {
	client := s.newClient()
	opened, err := apistorage.Open(client, compactRevision{s}, c, newObject, newList, resourcePrefix, nil)
	if err != nil {
		s.drop(client.Client)
		return nil, err
	}
	return s.owning(opened, client), nil
}

// OpenReserving returns the storage of a resource whose objects hold names, a *Reserving.
func (s *Server) OpenReserving(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object,
	resourcePrefix string,
	holds func(runtime.Object) (holder string, names []string)) (storage.Interface, error) {
	client := s.newClient()
	opened, err := apistorage.OpenReserving(client, compactRevision{s}, c, newObject, newList, resourcePrefix, holds)
	if err != nil {
		s.drop(client.Client)
		return nil, err
	}
	s.owning(opened.Opened, client)
	return opened, nil
}

// Failed returns why the running database stopped, or nil once ctx has ended.
func (s *Server) Failed(ctx context.Context) error {
	select {
	case err := <-s.etcd.Err():
		return err
	case err := <-s.fatal.failed:
		return s.explain(err)
	case <-s.etcd.Server.StopNotify():
		if ctx.Err() != nil {
			return nil
		}
		return s.stopped(ctx)
	case <-ctx.Done():
		return nil
	}
}

// During calls f, which asks the database, and returns what it returns. Once the database cannot go on it returns why,
// and leaves f to the end of the process: nothing that is asked then is answered, or can be given up.
func (s *Server) During(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-s.fatal.happened:
		return s.explain(<-s.fatal.failed)
	}
}

// Lost is closed when the database cannot go on, as with a full disk. Who waits for an answer
// of it then may wait for ever.
func (s *Server) Lost() <-chan struct{} { return s.fatal.happened }

// Close stops the database; everything acknowledged is on disk. One that cannot go on, as with a full disk, ends with
// the process.
func (s *Server) Close() {
	s.end()
	s.fatal.end(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, client := range s.clients {
			_ = client.Close()
		}
		s.etcd.Close()
	})
	s.door.close()
}

// owning has a client closed with a storage that was opened with it.
func (s *Server) owning(opened *apistorage.Opened, client *etcdkube.Client) *apistorage.Opened {
	opened.OnClose(func() {
		select {
		case <-s.Lost(): // it could wait for ever
		default:
			s.drop(client.Client)
		}
	})
	return opened
}

// Stored opens it for the embedded database.
func (s *Server) Stored() *apistorage.Stored { return apistorage.NewStored(s.newClient().Client) }

// OpenHot returns the storage of a resource that decodes with the decoder, and the
// feed of what it holds.
func (s *Server) OpenHot(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object,
	resourcePrefix string, decoder etcd3.Decoder,
) (storage.Interface, *apistorage.Feed, error) {
	client := s.newClient()
	opened, err := apistorage.Open(client, compactRevision{s}, c, newObject, newList, resourcePrefix, decoder)
	if err != nil {
		s.drop(client.Client)
		return nil, nil, err
	}
	return s.owning(opened, client), apistorage.NewFeed(client.Client, c.Prefix, resourcePrefix), nil
}
