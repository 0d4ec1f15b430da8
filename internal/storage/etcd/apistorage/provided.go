package apistorage

import (
	"context"
	"errors"
	"path"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkube "go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/everynode/everynode/internal/storage/provided"
)

// rooted is the client, and has writes depend on what their contexts say.
func rooted(client *etcdkube.Client, prefix string) *etcdkube.Client {
	out := *client
	out.Kubernetes = providedClient{client.Kubernetes, client.Client, strings.TrimSuffix(path.Join("/", prefix), "/")}
	return &out
}

// providedClient adds to the transaction of an object that another one is as it was seen.
type providedClient struct {
	etcdkube.Interface
	client *clientv3.Client
	// root is what all keys begin with and the API's storages do not show.
	root string
}

// OptimisticPut implements kubernetes.Interface. It fails with ChangedError if the object is as expected, but the other
// one is not.
func (k providedClient) OptimisticPut(ctx context.Context, key string, value []byte, revision int64,
	options etcdkube.PutOptions) (resp etcdkube.PutResponse, err error) {
	other, version, depends := provided.Of(ctx)
	if !depends {
		return k.Interface.OptimisticPut(ctx, key, value, revision, options)
	}
	other = k.root + other
	seen := int64(version) //nolint:gosec // Revisions of etcd are int64.
	answer, err := k.client.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(key), "=", revision),
		clientv3.Compare(clientv3.ModRevision(other), "=", seen),
	).Then(
		clientv3.OpPut(key, string(value), clientv3.WithLease(options.LeaseID)),
	).Else(
		clientv3.OpGet(key), clientv3.OpGet(other, clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		return resp, err
	}
	resp.Succeeded, resp.Revision = answer.Succeeded, answer.Header.Revision
	if resp.Succeeded {
		return resp, nil
	}
	if kvs := answer.Responses[0].GetResponseRange().GetKvs(); len(kvs) == 1 {
		resp.KV = kvs[0]
	}
	if resp.KV.GetModRevision() != revision {
		return resp, nil
	}
	kvs := answer.Responses[1].GetResponseRange().GetKvs()
	if len(kvs) == 1 && kvs[0].ModRevision == seen {
		return resp, errors.New("the database refused a write without a reason")
	}
	return resp, &ChangedError{other}
}
