// Package external uses an etcd that others run: whether it can be used, and how the servers of one cluster do.
package external

import (
	"context"
	"strings"
	"sync"

	etcdkube "go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/everynode/everynode/internal/storage/etcd/apistorage"
	"github.com/everynode/everynode/internal/storage/etcd/kv"
	"github.com/everynode/everynode/internal/storage/members"
)

// What servers write into an etcd of others to agree, below the prefix of all keys.
const (
	externalTurn     = "/everynode/turn"
	externalKeys     = "/everynode/keys"
	externalSettings = "/everynode/settings"
)

// Etcd is an etcd that others run, as the servers of one cluster use it.
type Etcd struct {
	config storagebackend.Config
	own    *etcdkube.Client
	// compactor is nil where somebody else compacts.
	compactor etcd3.Compactor

	mu      sync.Mutex                  // guards clients
	clients map[string]*etcdkube.Client // by the prefix of the resource
}

// Open connects to the etcd that a configuration names. The clients live as long as
// the process.
func Open(c storagebackend.Config) (*Etcd, error) {
	own, err := remote(c.Transport)
	if err != nil {
		return nil, err
	}
	e := &Etcd{config: c, own: own, clients: map[string]*etcdkube.Client{}}
	if c.CompactionInterval > 0 {
		e.compactor = etcd3.StartCompactorPerEndpoint(own.Client, c.CompactionInterval)
	}
	return e, nil
}

// Open returns the storage of one resource.
func (e *Etcd) Open(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object,
	resourcePrefix string) (storage.Interface, error) {
	client, err := e.client(resourcePrefix)
	if err != nil {
		return nil, err
	}
	opened, err := apistorage.Open(client, e.compactor, c, newObject, newList, resourcePrefix, nil)
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// client is that of a resource: what its watches ask for is no work for those of others.
func (e *Etcd) client(resourcePrefix string) (*etcdkube.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.clients[resourcePrefix]; known != nil {
		return known, nil
	}
	client, err := remote(e.config.Transport)
	if err == nil {
		client.KV = etcd3.NewETCDLatencyTracker(client.KV)
		e.clients[resourcePrefix] = client
	}
	return client, err
}

func (e *Etcd) key(name string) string { return strings.TrimSuffix(e.config.Prefix, "/") + name }

// TakeTurn is that of the embedded database.
func (e *Etcd) TakeTurn(ctx context.Context, by, lease string, revision int64) (*members.Turn, error) {
	return kv.TakeTurn(ctx, e.own.Client, e.key(externalTurn), by, lease, revision)
}

// Agreed tells the digest of the keys that all servers are to have; empty if nobody has told.
// The revision is for Agree.
func (e *Etcd) Agreed(ctx context.Context) (hash string, revision int64, err error) {
	return kv.Agreed(ctx, e.own.Client, e.key(externalKeys))
}

// Agree tells the digest, unless somebody has since the revision.
func (e *Etcd) Agree(ctx context.Context, hash string, revision int64) (done bool, err error) {
	return kv.Agree(ctx, e.own.Client, e.key(externalKeys), hash, revision)
}

// Settings are what all servers are to be configured with, as they were written; empty if
// nobody has.
func (e *Etcd) Settings(ctx context.Context) (text string, revision int64, err error) {
	return kv.Agreed(ctx, e.own.Client, e.key(externalSettings))
}

// SetSettings writes them, unless somebody has since the revision.
func (e *Etcd) SetSettings(ctx context.Context, text string, revision int64) (done bool, err error) {
	return kv.Agree(ctx, e.own.Client, e.key(externalSettings), text, revision)
}
