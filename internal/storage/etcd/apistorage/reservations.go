package apistorage

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
// object each name should belong to, and which names to nobody. What changes meanwhile is left alone, for it was
// right when it was written.
func (r *Reserving) Repair(ctx context.Context,
	assign func(objects []runtime.Object, holders map[string]string) (owners map[string]runtime.Object,
		free []string)) error {
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
	wanted, free := assign(objects, holders)
	for _, name := range free {
		if err := r.correct(ctx, name, records[name], nil); err != nil {
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
		unchanged, err := r.unchanged(to)
		if err != nil {
			return err
		}
		conditions = append(conditions, unchanged)
		holder, _ := r.holds(to)
		write = clientv3.OpPut(key, holder)
	}
	if _, err := r.client.Txn(ctx).If(conditions...).Then(write).Commit(); err != nil {
		return fmt.Errorf("write who holds %s: %w", name, err)
	}
	return nil
}

// unchanged is the condition that an object is as it was read.
func (r *Reserving) unchanged(obj runtime.Object) (clientv3.Cmp, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return clientv3.Cmp{}, fmt.Errorf("read the name of an object: %w", err)
	}
	version, err := r.Versioner().ObjectResourceVersion(obj)
	if err != nil {
		return clientv3.Cmp{}, fmt.Errorf("read the version of %s: %w", m.GetName(), err)
	}
	return clientv3.Compare(clientv3.ModRevision(r.keyOf(m.GetNamespace(), m.GetName())), "=",
		int64(version)), nil //nolint:gosec // Revisions of etcd are int64.
}

func (r *Reserving) keyOf(namespace, name string) string {
	return path.Join(r.objectsKey, namespace, name)
}

// Key is that of an object without a namespace in the database.
func (r *Reserving) Key(name string) string { return r.keyOf("", name) }

// List reads all objects as they are now.
func (r *Reserving) List(ctx context.Context) ([]runtime.Object, error) {
	list := r.newList()
	everything := storage.ListOptions{Predicate: storage.Everything, Recursive: true}
	if err := r.GetList(ctx, r.objects, everything, list); err != nil {
		return nil, fmt.Errorf("read all objects: %w", err)
	}
	out, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("read all objects: %w", err)
	}
	return out, nil
}

// ShowAgain writes what is kept beside a name that an object holds, if the object is as it was read, holds the name,
// and what is there has that revision; 0 is none.
func (r *Reserving) ShowAgain(ctx context.Context, obj runtime.Object, name string, revision int64) error {
	holder, _ := r.holds(obj)
	unchanged, err := r.unchanged(obj)
	if err != nil {
		return err
	}
	key, value, err := r.show(obj, name)
	if err != nil {
		return err
	}
	holds := clientv3.Compare(clientv3.Value(r.prefix+name), "=", holder)
	was := clientv3.Compare(clientv3.ModRevision(key), "=", revision)
	if _, err := r.client.Txn(ctx).If(unchanged, holds,
		was).Then(clientv3.OpPut(key, string(value))).Commit(); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

// Take has an object hold a name of its own, if it is as it was read and nobody holds the name.
func (r *Reserving) Take(ctx context.Context, obj runtime.Object, name string) error {
	return r.correct(ctx, name, record{}, obj)
}

// Discard deletes an object whose name nobody holds, if both are still so.
func (r *Reserving) Discard(ctx context.Context, obj runtime.Object, name string) error {
	unchanged, err := r.unchanged(obj)
	if err != nil {
		return err
	}
	nobody := clientv3.Compare(clientv3.CreateRevision(r.prefix+name), "=", 0)
	txn := r.client.Txn(ctx).If(unchanged, nobody).Then(clientv3.OpDelete(string(unchanged.KeyBytes())))
	if _, err := txn.Commit(); err != nil {
		return fmt.Errorf("delete %s, which shows what nobody holds: %w", unchanged.KeyBytes(), err)
	}
	return nil
}

// Free takes a name from a holder that has no object, if both are still so.
func (r *Reserving) Free(ctx context.Context, name, holder, objectName string) error {
	holds := clientv3.Compare(clientv3.Value(r.prefix+name), "=", holder)
	none := clientv3.Compare(clientv3.CreateRevision(r.Key(objectName)), "=", 0)
	if _, err := r.client.Txn(ctx).If(holds, none).Then(clientv3.OpDelete(r.prefix + name)).Commit(); err != nil {
		return fmt.Errorf("free %s of %s: %w", name, holder, err)
	}
	return nil
}
