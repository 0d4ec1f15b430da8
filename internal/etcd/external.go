package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkube "go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/everynode/everynode/internal/members"
)

// What servers write into an etcd of others to agree, below the prefix of all keys.
const (
	externalTurn     = "/everynode/turn"
	externalKeys     = "/everynode/keys"
	externalSettings = "/everynode/settings"
)

// External is an etcd that others run, as the servers of one cluster use it.
type External struct {
	config storagebackend.Config
	own    *etcdkube.Client
	// compactor is nil where somebody else compacts.
	compactor etcd3.Compactor

	mu      sync.Mutex                  // guards clients
	clients map[string]*etcdkube.Client // by the prefix of the resource
}

// OpenExternal connects to the etcd that a configuration names. The clients live as long as
// the process.
func OpenExternal(c storagebackend.Config) (*External, error) {
	own, err := remote(c.Transport)
	if err != nil {
		return nil, err
	}
	e := &External{config: c, own: own, clients: map[string]*etcdkube.Client{}}
	if c.CompactionInterval > 0 {
		e.compactor = etcd3.StartCompactorPerEndpoint(own.Client, c.CompactionInterval)
	}
	return e, nil
}

// Open returns the storage of one resource.
func (e *External) Open(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, resourcePrefix string) (storage.Interface, error) {
	client, err := e.client(resourcePrefix)
	if err != nil {
		return nil, err
	}
	opened, err := openWith(client, e.compactor, c, newObject, newList, resourcePrefix, etcd3.NewDefaultDecoder(c.Codec, storage.APIObjectVersioner{}))
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// client is that of a resource: what its watches ask for is no work for those of others.
func (e *External) client(resourcePrefix string) (*etcdkube.Client, error) {
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

func (e *External) key(name string) string { return strings.TrimSuffix(e.config.Prefix, "/") + name }

// TakeTurn is that of the embedded database.
func (e *External) TakeTurn(ctx context.Context, by, lease string, revision int64) (*members.Turn, error) {
	return takeTurn(ctx, e.own.Client, e.key(externalTurn), by, lease, revision)
}

// Agreed tells the digest of the keys that all servers are to have; empty if nobody has told.
// The revision is for Agree.
func (e *External) Agreed(ctx context.Context) (hash string, revision int64, err error) {
	return agreed(ctx, e.own.Client, e.key(externalKeys))
}

// Agree tells the digest, unless somebody has since the revision.
func (e *External) Agree(ctx context.Context, hash string, revision int64) (done bool, err error) {
	return agree(ctx, e.own.Client, e.key(externalKeys), hash, revision)
}

// Settings are what all servers are to be configured with, as they were written; empty if
// nobody has.
func (e *External) Settings(ctx context.Context) (text string, revision int64, err error) {
	return agreed(ctx, e.own.Client, e.key(externalSettings))
}

// SetSettings writes them, unless somebody has since the revision.
func (e *External) SetSettings(ctx context.Context, text string, revision int64) (done bool, err error) {
	return agree(ctx, e.own.Client, e.key(externalSettings), text, revision)
}

// agreed reads what the servers have agreed on under a key.
func agreed(ctx context.Context, client *clientv3.Client, key string) (value string, revision int64, err error) {
	answer, err := client.Get(ctx, key)
	if err != nil {
		return "", 0, fmt.Errorf("read what all servers have agreed on: %w", err)
	}
	if len(answer.Kvs) == 0 {
		return "", 0, nil
	}
	return string(answer.Kvs[0].Value), answer.Kvs[0].ModRevision, nil
}

// agree writes it, unless somebody has since the revision.
func agree(ctx context.Context, client *clientv3.Client, key, value string, revision int64) (done bool, err error) {
	answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).Then(clientv3.OpPut(key, value)).Commit()
	if err != nil {
		return false, fmt.Errorf("write what all servers have agreed on: %w", err)
	}
	return answer.Succeeded, nil
}
