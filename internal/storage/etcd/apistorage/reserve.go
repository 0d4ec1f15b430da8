package apistorage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkube "go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// Holds says who an object is, and which names it holds, each once. No two objects
// of a resource may hold one name at a time.
type Holds func(obj runtime.Object) (holder string, names []string)

// reservedPrefix is where it is written who holds which name, below the prefix of all
// keys. Nothing else is there.
const reservedPrefix = "/ranges/"

// MaxTxnOps is how many operations the embedded database takes in one transaction: a
// Service may take every node port that there is.
const MaxTxnOps = 4096

// Show gives the object that is kept beside a name for everybody to see, or no key where none is. The key is one of the
// database. Without a holder only the key is asked for, of an object that has to go.
type Show = func(holder runtime.Object, name string) (key string, value []byte, err error)

// Guard tells of keys of the database with the revisions that they must still have when an object takes names; 0 is
// one that does not exist.
type Guard = func(ctx context.Context, obj runtime.Object, names []string) (map[string]int64, error)

// TakenError says that a write was refused because a name belongs to another object.
type TakenError struct{ Name, Holder string }

// Error implements error.
func (e *TakenError) Error() string { return fmt.Sprintf("%s is held by %s", e.Name, e.Holder) }

// Taken marks the error for those who cannot import this package.
func (e *TakenError) Taken() (name, holder string) { return e.Name, e.Holder }

// ChangedError says that a write was refused because a key that a Guard told of has changed since.
type ChangedError struct{ Key string }

// Error implements error.
func (e *ChangedError) Error() string { return e.Key + " has changed meanwhile" }

// Changed marks the error for those who cannot import this package.
func (e *ChangedError) Changed() string { return e.Key }

// Reserving is the storage of a resource whose objects hold names. Each write of an
// object takes the names that it holds from then on, and gives back those that it
// held before, in the transaction that writes the object: what holds for the object
// holds for its names, however many servers write and wherever one of them dies.
type Reserving struct {
	*Opened
	holds  Holds
	show   Show  // may be nil
	guard  Guard // may be nil
	client *clientv3.Client
	// prefix is below which names are. The storage finds the objects below objects,
	// which is the key objectsKey of the database.
	prefix, objects, objectsKey string
	newList                     func() runtime.Object
}

// change is what a write does to names. It travels in the write's context, since the
// layer between decodes and encodes but knows of one key only.
type change struct {
	holder     string
	take, give []string
	// shown are the objects that are kept beside names, by name; those of names that are given have a key only.
	shown map[string]shown
	// unchanged are the revisions that keys must have.
	unchanged map[string]int64
}

// shown is an object of another resource, as it is stored.
type shown struct{ key, value string }

type changeKey struct{}

func (r *Reserving) context(ctx context.Context) (context.Context, *change) {
	c := &change{}
	return context.WithValue(ctx, changeKey{}, c), c
}

// ShowNames has an object kept beside each name from now on, in the transactions that take and give the name.
func (r *Reserving) ShowNames(show Show) { r.show = show }

// GuardNames has names taken only while what the guard tells of stays as it is.
func (r *Reserving) GuardNames(guard Guard) { r.guard = guard }

// between sets what it takes to come from one object to another; nil is none.
func (r *Reserving) between(ctx context.Context, c *change, before *held, after runtime.Object) (err error) {
	c.names(r.holds, before, after)
	if r.guard != nil && len(c.take) > 0 {
		c.unchanged, err = r.guard(ctx, after, c.take)
		if err != nil {
			return err
		}
	}
	if r.show == nil {
		return nil
	}
	c.shown = map[string]shown{}
	for _, name := range c.take {
		key, value, err := r.show(after, name)
		if err != nil {
			return err
		}
		c.shown[name] = shown{key, string(value)}
	}
	for _, name := range c.give {
		key, _, err := r.show(nil, name)
		if err != nil {
			return err
		}
		c.shown[name] = shown{key: key}
	}
	return nil
}

// names sets which are taken and given.
func (c *change) names(holds Holds, before *held, after runtime.Object) {
	*c = change{}
	now := held{}
	if after != nil {
		now = heldBy(holds, after)
		c.holder = now.holder
	}
	if before == nil {
		before = &held{}
	} else if c.holder == "" {
		c.holder = before.holder
	}
	c.take, c.give = without(now.names, before.names), without(before.names, now.names)
}

// held is what one object holds.
type held struct {
	holder string
	names  []string
}

func heldBy(holds Holds, obj runtime.Object) held {
	holder, names := holds(obj)
	return held{holder, names}
}

func without(names, others []string) (out []string) {
	skip := make(map[string]bool, len(others))
	for _, n := range others {
		skip[n] = true
	}
	for _, n := range names {
		if !skip[n] {
			out = append(out, n)
		}
	}
	return out
}

// Create implements storage.Interface.
func (r *Reserving) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	ctx, c := r.context(ctx)
	if err := r.between(ctx, c, nil, obj); err != nil {
		return err
	}
	return r.Opened.Create(ctx, key, obj, out, ttl)
}

// GuaranteedUpdate implements storage.Interface.
func (r *Reserving) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, try storage.UpdateFunc, cached runtime.Object) error {
	ctx, c := r.context(ctx)
	return r.Opened.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions,
		func(old runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
			// The function may change the object that it is given.
			before := heldBy(r.holds, old)
			changed, ttl, err := try(old, meta)
			if err == nil {
				err = r.between(ctx, c, &before, changed)
			}
			return changed, ttl, err
		}, cached)
}

// Delete implements storage.Interface.
func (r *Reserving) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, options storage.DeleteOptions) error {
	ctx, c := r.context(ctx)
	return r.Opened.Delete(ctx, key, out, preconditions, func(ctx context.Context, obj runtime.Object) error {
		before := heldBy(r.holds, obj)
		if err := r.between(ctx, c, &before, nil); err != nil {
			return err
		}
		return validate(ctx, obj)
	}, cached, options)
}

// reservingClient adds to the transaction of an object those of its names.
type reservingClient struct {
	*etcdkube.Client
	prefix string
}

var _ etcdkube.Interface = reservingClient{}

// OptimisticPut implements kubernetes.Interface.
func (k reservingClient) OptimisticPut(ctx context.Context, key string, value []byte, revision int64,
	options etcdkube.PutOptions) (resp etcdkube.PutResponse, err error) {
	c, _ := ctx.Value(changeKey{}).(*change)
	if c == nil || len(c.take)+len(c.give) == 0 {
		return k.Client.OptimisticPut(ctx, key, value, revision, options)
	}
	outcome, err := k.commit(ctx, key, revision, c,
		clientv3.OpPut(key, string(value), clientv3.WithLease(options.LeaseID)))
	if err != nil {
		return resp, err
	}
	return etcdkube.PutResponse{KV: outcome.current, Succeeded: outcome.succeeded, Revision: outcome.revision}, nil
}

// OptimisticDelete implements kubernetes.Interface.
func (k reservingClient) OptimisticDelete(ctx context.Context, key string, revision int64,
	options etcdkube.DeleteOptions) (resp etcdkube.DeleteResponse, err error) {
	c, _ := ctx.Value(changeKey{}).(*change)
	if c == nil || len(c.give) == 0 {
		return k.Client.OptimisticDelete(ctx, key, revision, options)
	}
	outcome, err := k.commit(ctx, key, revision, c, clientv3.OpDelete(key))
	if err != nil {
		return resp, err
	}
	return etcdkube.DeleteResponse{KV: outcome.current, Succeeded: outcome.succeeded, Revision: outcome.revision}, nil
}

// outcome is what became of a transaction.
type outcome struct {
	succeeded bool
	revision  int64
	// current is the object as it is, where it is another than was expected.
	current *mvccpb.KeyValue
}

// commit writes the object together with its names. It fails with TakenError if the object is as expected, but somebody
// else holds a name, and with ChangedError if something else is not as expected.
func (k reservingClient) commit(ctx context.Context, key string, revision int64, c *change, write clientv3.Op) (outcome,
	error) {
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)}
	reads := []clientv3.Op{clientv3.OpGet(key)}
	for _, name := range c.take {
		record := k.prefix + name
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(record), "=", 0))
		reads = append(reads, clientv3.OpGet(record))
	}
	guarded := slices.Sorted(maps.Keys(c.unchanged))
	for _, g := range guarded {
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(g), "=", c.unchanged[g]))
		reads = append(reads, clientv3.OpGet(g))
	}
	answer, err := k.KV.Txn(ctx).If(conditions...).Then(append(k.writes(c), write)...).Else(reads...).Commit()
	if err != nil {
		return outcome{}, err
	}
	out := outcome{succeeded: answer.Succeeded, revision: answer.Header.Revision}
	if answer.Succeeded {
		return out, nil
	}
	found := make([]*mvccpb.KeyValue, len(reads))
	for i, r := range answer.Responses {
		if kvs := r.GetResponseRange().GetKvs(); len(kvs) == 1 {
			found[i] = kvs[0]
		}
	}
	if found[0].GetModRevision() != revision {
		out.current = found[0]
		return out, nil
	}
	for i, name := range c.take {
		if taken := found[i+1]; taken != nil {
			return out, &TakenError{Name: name, Holder: string(taken.Value)}
		}
	}
	for i, g := range guarded {
		if found[i+1+len(c.take)].GetModRevision() != c.unchanged[g] {
			return out, &ChangedError{g}
		}
	}
	return out, errors.New("the database refused a write without a reason")
}

// writes take and give names, with what is kept beside them.
func (k reservingClient) writes(c *change) (out []clientv3.Op) {
	for _, name := range c.take {
		out = append(out, clientv3.OpPut(k.prefix+name, c.holder))
		if s := c.shown[name]; s.key != "" {
			out = append(out, clientv3.OpPut(s.key, s.value))
		}
	}
	for _, name := range c.give {
		record := k.prefix + name
		// Two that held one name before names were written down: the record is one's only.
		mine, free := clientv3.Compare(clientv3.Value(record), "=", c.holder), []clientv3.Op{clientv3.OpDelete(record)}
		if s := c.shown[name]; s.key != "" {
			free = append(free, clientv3.OpDelete(s.key))
		}
		out = append(out, clientv3.OpTxn([]clientv3.Cmp{mine}, free, nil))
	}
	return out
}

// OpenReserving returns the storage of a resource whose objects hold names.
func OpenReserving(client *etcdkube.Client, compactor etcd3.Compactor, c *storagebackend.ConfigForResource, newObject,
	newList func() runtime.Object,
	resourcePrefix string, holds Holds) (*Reserving, error) {
	r := &Reserving{
		holds: holds, client: client.Client, newList: newList,
		prefix: c.Prefix + reservedPrefix, objects: resourcePrefix, objectsKey: c.Prefix + resourcePrefix,
	}
	client.Kubernetes = reservingClient{&etcdkube.Client{Client: client.Client}, r.prefix}
	var err error
	r.Opened, err = Open(client, compactor, c, newObject, newList, resourcePrefix, nil)
	if err != nil {
		return nil, err
	}
	return r, nil
}
