package atrest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/storage/encryption/plan"
)

// witness is a stored value that is encrypted like a Secret, and is there from the
// first start on: it shows whether the keys are those of this database, also while
// there is no Secret, and which of two servers that make a key at once was first.
func (k *Keeper) witness() string { return k.config.Prefix + "/encryption/secrets" }

// Open finds the keys of the file beside the data, or makes one for a database that is
// empty. It refuses what could not be read again, and says what to do about it.
func Open(ctx context.Context, c Config) (*Keeper, error) {
	k := &Keeper{config: c, changed: make(chan struct{}, 1)}
	if c.Own != nil {
		if err := k.readableOthers(ctx); err != nil {
			return nil, err
		}
		// An operator's keys change without the witness; it would soon tell lies.
		return k, c.Database.Delete(ctx, k.witness())
	}
	if err := encryption.RemoveUnfinished(c.File); err != nil {
		return nil, err
	}
	content, err := encryption.Read(c.File)
	if err != nil {
		return nil, err
	}
	made := false
	if content == nil {
		if made, err = c.Database.Empty(ctx, c.Prefix+"/"); err != nil {
			return nil, err
		}
	}
	if made {
		if content, err = makeFile(c.File); err != nil {
			return nil, err
		}
	}
	err = k.begin(ctx, content, made)
	if errors.Is(err, errNotFirst) {
		err = errors.Join(err, os.Remove(c.File))
	}
	return k, err
}

func makeFile(path string) ([]byte, error) {
	key, err := encryption.NewKey(plan.First())
	if err != nil {
		return nil, err
	}
	return encryption.Write(path, encryption.Keys{key})
}

// begin uses the content of the file, which may be none.
func (k *Keeper) begin(ctx context.Context, content []byte, made bool) error {
	c, hash := newCipher(nil), ""
	if content != nil {
		var err error
		if c, err = parse(k.config.File, content); err != nil {
			return err
		}
		hash = encryption.Hash(content)
	}
	if err := k.testify(ctx, c, made); err != nil {
		return err
	}
	if err := k.readableOthers(ctx); err != nil {
		return err
	}
	if err := k.readable(ctx, c); err != nil {
		return err
	}
	k.use(c, hash)
	k.mu.Lock()
	k.since = k.since.Add(-k.config.Settle) // Nothing is under way before the start.
	k.mu.Unlock()
	if writesPlain(c) {
		klog.FromContext(ctx).Info(
			"Secrets are stored unencrypted, since this data is from before they were; encrypt them with: everynode secrets " +
				"encrypt",
		)
	}
	return nil
}

func writesPlain(c cipher) bool { return len(c.keys) == 0 || c.keys[0].Name == encryption.Plain }

var errNotFirst = errors.New(
	"another server of this cluster has made the key of its Secrets just now; copy its encryption.yaml into this data " +
		"folder",
)

// testify makes the witness, or compares it with the keys.
func (k *Keeper) testify(ctx context.Context, c cipher, made bool) error {
	stored, _, err := k.config.Database.Get(ctx, k.witness())
	if err != nil {
		return err
	}
	if stored == nil {
		return k.makeWitness(ctx, c, made)
	}
	key := encryption.KeyOf(stored)
	if len(c.keys) == 0 {
		return fmt.Errorf(
			"the Secrets in the database are encrypted, and %s is missing, which holds the key %s; restore it from a backup, "+
				"or copy it from another server of the cluster",
			k.config.File, shortKey(key),
		)
	}
	if made {
		return errNotFirst
	}
	if _, _, err := c.TransformFromStorage(ctx, stored, value.DefaultContext(k.witness())); err != nil {
		return fmt.Errorf(
			"the keys in %s are not those of this database, which is encrypted with another %s; restore the file from a "+
				"backup, or copy it from another server of the cluster",
			k.config.File, shortKey(key),
		)
	}
	return k.notOlder(key, c)
}

// notOlder refuses keys that would write with an older one than the witness was written
// with, or with none.
func (k *Keeper) notOlder(witness string, c cipher) error {
	if len(c.keys) > 0 && plan.Newer(shortKey(witness), c.keys[0].Name) {
		return fmt.Errorf(
			"the database is encrypted with %s, and %s would still write with the older %s; copy the file from another server "+
				"of the cluster",
			shortKey(witness), k.config.File, plan.Display(c.keys[0].Name),
		)
	}
	return nil
}

func (k *Keeper) makeWitness(ctx context.Context, c cipher, made bool) error {
	if writesPlain(c) {
		return nil
	}
	value, err := c.TransformToStorage(ctx, []byte("everynode"), value.DefaultContext(k.witness()))
	if err != nil {
		return fmt.Errorf("encrypt something: %w", err)
	}
	first, err := k.config.Database.Create(ctx, k.witness(), value)
	if err == nil && !first && made {
		return errNotFirst
	}
	return err
}

// readable makes sure that there is a key for each Secret that is stored, and that it is
// the one that wrote it: two clusters' keys have the same names.
func (k *Keeper) readable(ctx context.Context, c cipher) error {
	stored, witness, err := k.count(ctx, k.builtIn(secrets))
	if err == nil {
		err = k.tryEach(ctx, c)
	}
	if err != nil {
		return err
	}
	if witness != encryption.Plain {
		stored[witness]++
	}
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		switch n := stored[key]; {
		case n == 0 || c.has(key):
		case key == encryption.Plain:
			return fmt.Errorf(
				"%d Secrets are stored unencrypted, which %s does not allow; add \"- identity: {}\" as its last provider, start "+
					"again, and run everynode secrets encrypt",
				n, k.config.File,
			)
		case len(c.keys) == 0:
			return fmt.Errorf(
				"%d Secrets are encrypted with %s, and there is no %s; restore it from a backup, or name the "+
					"--encryption-provider-config that they were written with",
				n, shortKey(key), k.config.File,
			)
		default:
			return fmt.Errorf(
				"%d Secrets are encrypted with %s, which is not in %s; restore that key from a backup",
				n, shortKey(key), k.config.File,
			)
		}
	}
	return nil
}

// triedObjects is how many stored objects of a resource are read at the start.
const triedObjects = 500

var errEnough = errors.New("enough was read")

// readableOthers makes sure that objects of added kinds can be read, and their definitions:
// nobody else does before the server is ready, and only users would see that it cannot.
func (k *Keeper) readableOthers(ctx context.Context) error {
	others, err := k.added(ctx)
	if err != nil {
		return err
	}
	for _, r := range k.config.Definitions {
		others = append(others, k.builtIn(r))
	}
	for _, r := range others {
		t, tried := k.transformer(r), 0
		err := k.each(ctx, r, func(key string, stored []byte, _ int64) error {
			tried++
			if tried > triedObjects {
				return errEnough
			}
			_, _, err := t.TransformFromStorage(ctx, stored, value.DefaultContext(key))
			return err
		})
		switch {
		case err == nil || errors.Is(err, errEnough):
		case k.config.Own == nil:
			return fmt.Errorf(
				"the stored %s cannot be read: %w; if they are encrypted, name their --encryption-provider-config", r, err,
			)
		default:
			return fmt.Errorf(
				"the stored %s cannot be read with --encryption-provider-config %s: %w; add the key that they were written with, "+
					"or the provider identity if they are not encrypted",
				r, k.config.File, err,
			)
		}
	}
	return nil
}

// tryEach decrypts one stored value of each key.
func (k *Keeper) tryEach(ctx context.Context, c cipher) error {
	tried := map[string]bool{}
	return k.each(ctx, k.builtIn(secrets), func(key string, stored []byte, _ int64) error {
		name := encryption.KeyOf(stored)
		if tried[name] || name == encryption.Plain || !c.has(name) {
			return nil
		}
		tried[name] = true
		if _, _, err := c.TransformFromStorage(ctx, stored, value.DefaultContext(key)); err != nil {
			return fmt.Errorf(
				"%s has another %s than the one that Secrets in the database are encrypted with; restore the file from a backup, "+
					"or copy it from another server of the cluster",
				k.config.File, shortKey(name),
			)
		}
		return nil
	})
}
