package apistorage

import (
	"bytes"
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/everynode/everynode/internal/storage/etcd/kv"
)

// storedAtOnce is how many objects are read at a time.
const storedAtOnce = 200

// Stored reads and writes what is stored as it is: encoded, and maybe encrypted.
type Stored struct{ client *clientv3.Client }

// NewStored returns what is stored in the database of a client.
func NewStored(client *clientv3.Client) *Stored { return &Stored{client} }

// Empty says whether no key begins so.
func (s *Stored) Empty(ctx context.Context, prefix string) (bool, error) {
	answer, err := s.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil {
		return false, fmt.Errorf("look whether the database is empty: %w", err)
	}
	return len(answer.Kvs) == 0, nil
}

// Each calls f for every value whose key begins so, in the order of the keys. What is
// written meanwhile may be among them or not.
func (s *Stored) Each(ctx context.Context, prefix string,
	f func(key string, value []byte, revision int64) error) error {
	for next, end := prefix, clientv3.GetPrefixRangeEnd(prefix); ; {
		answer, err := s.client.Get(ctx, next, clientv3.WithRange(end), clientv3.WithLimit(storedAtOnce))
		if err != nil {
			return fmt.Errorf("read what is stored below %s: %w", prefix, err)
		}
		for _, kv := range answer.Kvs {
			if err := f(string(kv.Key), kv.Value, kv.ModRevision); err != nil {
				return err
			}
		}
		if !answer.More || len(answer.Kvs) == 0 {
			return nil
		}
		next = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
	}
}

// First returns the first key of those that begin so which is not before from, or nothing.
func (s *Stored) First(ctx context.Context, prefix, from string) (string, error) {
	answer, err := s.client.Get(ctx, max(prefix, from), clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)),
		clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil {
		return "", fmt.Errorf("look what is stored below %s: %w", prefix, err)
	}
	if len(answer.Kvs) == 0 {
		return "", nil
	}
	return string(answer.Kvs[0].Key), nil
}

// Get returns a value, nil for none, and its revision.
func (s *Stored) Get(ctx context.Context, key string) (value []byte, revision int64, err error) {
	answer, err := s.client.Get(ctx, key)
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", key, err)
	}
	if len(answer.Kvs) == 0 {
		return nil, 0, nil
	}
	return answer.Kvs[0].Value, answer.Kvs[0].ModRevision, nil
}

// Create writes a value where there is none, and says whether it did.
func (s *Stored) Create(ctx context.Context, key string, value []byte) (bool, error) {
	done, err := s.put(ctx, clientv3.Compare(clientv3.CreateRevision(key), "=", 0), key, value)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", key, err)
	}
	return done, nil
}

// Replace writes a value in the place of that of the revision, and says whether it
// was still there. Its lease stays.
func (s *Stored) Replace(ctx context.Context, key string, revision int64, value []byte) (bool, error) {
	done, err := s.put(ctx, clientv3.Compare(clientv3.ModRevision(key), "=", revision), key, value,
		clientv3.WithIgnoreLease())
	if err != nil {
		return false, fmt.Errorf("write %s again: %w", key, err)
	}
	return done, nil
}

// put writes a value on a condition, and says whether it did. An attempt that failed may have been
// made all the same: then the value itself is there.
func (s *Stored) put(ctx context.Context, condition clientv3.Cmp, key string, value []byte,
	options ...clientv3.OpOption) (bool, error) {
	attempts := 0
	answer, err := kv.Again(ctx, func() (*clientv3.TxnResponse, error) {
		attempts++
		return s.client.Txn(ctx).If(condition).Then(clientv3.OpPut(key, string(value),
			options...)).Else(clientv3.OpGet(key)).Commit()
	})
	if err != nil || answer.Succeeded || attempts == 1 {
		return err == nil && answer.Succeeded, err
	}
	there := answer.Responses[0].GetResponseRange().GetKvs()
	return len(there) == 1 && bytes.Equal(there[0].GetValue(), value), nil
}

// Delete removes a key, if it is there.
func (s *Stored) Delete(ctx context.Context, key string) error {
	if _, err := kv.Again(ctx, func() (*clientv3.DeleteResponse,
		error) {
		return s.client.Delete(ctx, key)
	}); err != nil {
		return fmt.Errorf("remove %s: %w", key, err)
	}
	return nil
}
