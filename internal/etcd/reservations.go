package etcd

import (
	"context"
	"fmt"
	"path"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// readAtOnce bounds how many names are asked for in one transaction.
const readAtOnce = 100

// Holders returns who holds the names; those that nobody holds are missing.
func (r *Reserving) Holders(ctx context.Context, names ...string) (map[string]string, error) {
	out := map[string]string{}
	for len(names) > 0 {
		some := names[:min(len(names), readAtOnce)]
		names = names[len(some):]
		reads := make([]clientv3.Op, 0, len(some))
		for _, name := range some {
			reads = append(reads, clientv3.OpGet(r.prefix+name))
		}
		answer, err := r.client.Txn(ctx).Then(reads...).Commit()
		if err != nil {
			return nil, fmt.Errorf("look who holds %s: %w", strings.Join(some, ", "), err)
		}
		for i, a := range answer.Responses {
			for _, kv := range a.GetResponseRange().GetKvs() {
				out[some[i]] = string(kv.Value)
			}
		}
	}
	return out, nil
}

// AllHolders returns who holds which of the names that begin so.
func (r *Reserving) AllHolders(ctx context.Context, beginning string) (map[string]string, error) {
	records, err := r.records(ctx, beginning, 0)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(records))
	for name, record := range records {
		out[name] = record.holder
	}
	return out, nil
}

type record struct {
	holder   string
	revision int64
}

func (r *Reserving) records(ctx context.Context, beginning string, revision int64) (map[string]record, error) {
	answer, err := r.client.Get(ctx, r.prefix+beginning, clientv3.WithPrefix(), clientv3.WithRev(revision))
	if err != nil {
		return nil, fmt.Errorf("read what is held: %w", err)
	}
	out := make(map[string]record, len(answer.Kvs))
	for _, kv := range answer.Kvs {
		out[strings.TrimPrefix(string(kv.Key), r.prefix)] = record{string(kv.Value), kv.ModRevision}
	}
	return out, nil
}

// Repair makes what is written of names agree with the objects, as they were at one
// moment. assign is told all objects and who is written to hold what, and says which
// object each name should belong to. What changes meanwhile is left alone, for it was
// right when it was written.
func (r *Reserving) Repair(ctx context.Context, assign func(objects []runtime.Object, holders map[string]string) map[string]runtime.Object) error {
	list := r.newList()
	everything := storage.ListOptions{Predicate: storage.Everything, Recursive: true}
	if err := r.GetList(ctx, r.objects, everything, list); err != nil {
		return fmt.Errorf("read the objects that hold names: %w", err)
	}
	listed, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("read the version of the objects that hold names: %w", err)
	}
	revision, err := r.Versioner().ParseResourceVersion(listed.GetResourceVersion())
	if err != nil {
		return fmt.Errorf("read the version of the objects that hold names: %w", err)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("read the objects that hold names: %w", err)
	}
	records, err := r.records(ctx, "", int64(revision)) //nolint:gosec // Revisions of etcd are int64.
	if err != nil {
		return err
	}
	holders := make(map[string]string, len(records))
	for name, record := range records {
		holders[name] = record.holder
	}
	wanted := assign(objects, holders)
	for name, record := range records {
		if wanted[name] != nil {
			continue
		}
		if err := r.correct(ctx, name, record, nil); err != nil {
			return err
		}
	}
	for name, obj := range wanted {
		if holder, _ := r.holds(obj); records[name].holder == holder {
			continue
		}
		if err := r.correct(ctx, name, records[name], obj); err != nil {
			return err
		}
	}
	return nil
}

// correct gives a name to an object, or to nobody, if both are still as they were read.
func (r *Reserving) correct(ctx context.Context, name string, was record, to runtime.Object) error {
	key := r.prefix + name
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", was.revision)}
	write := clientv3.OpDelete(key)
	if to != nil {
		m, err := meta.Accessor(to)
		if err != nil {
			return fmt.Errorf("read who should hold %s: %w", name, err)
		}
		version, err := r.Versioner().ObjectResourceVersion(to)
		if err != nil {
			return fmt.Errorf("read the version of who should hold %s: %w", name, err)
		}
		object := path.Join(r.objectsKey, m.GetNamespace(), m.GetName())
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(object), "=", int64(version))) //nolint:gosec // As above.
		holder, _ := r.holds(to)
		write = clientv3.OpPut(key, holder)
	}
	if _, err := r.client.Txn(ctx).If(conditions...).Then(write).Commit(); err != nil {
		return fmt.Errorf("write who holds %s: %w", name, err)
	}
	return nil
}
