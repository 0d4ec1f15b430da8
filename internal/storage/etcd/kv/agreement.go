package kv

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Agreed reads what the servers have agreed on under a key.
func Agreed(ctx context.Context, client *clientv3.Client, key string) (value string, revision int64, err error) {
	answer, err := client.Get(ctx, key)
	if err != nil {
		return "", 0, fmt.Errorf("read what all servers have agreed on: %w", err)
	}
	if len(answer.Kvs) == 0 {
		return "", 0, nil
	}
	return string(answer.Kvs[0].Value), answer.Kvs[0].ModRevision, nil
}

// Agree writes what the servers are to agree on under a key, unless somebody has since the revision, and reports
// whether it did.
func Agree(ctx context.Context, client *clientv3.Client, key, value string, revision int64) (done bool, err error) {
	answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=",
		revision)).Then(clientv3.OpPut(key, value)).Commit()
	if err != nil {
		return false, fmt.Errorf("write what all servers have agreed on: %w", err)
	}
	return answer.Succeeded, nil
}
