// Package atrest has Secrets encrypted in the database by the keys of the file
// beside the data, follows changes of that file, and tells and rewrites what is
// stored with which key.
package atrest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/storage/encryption"
)

// followInterval is after how long a change of the file is noticed.
const followInterval = time.Second

// Database is what is stored as it is: encoded, and maybe encrypted.
type Database interface {
	Empty(ctx context.Context, prefix string) (bool, error)
	Each(ctx context.Context, prefix string, f func(key string, value []byte, revision int64) error) error
	First(ctx context.Context, prefix, from string) (key string, err error)
	Get(ctx context.Context, key string) (value []byte, revision int64, err error)
	Create(ctx context.Context, key string, value []byte) (bool, error)
	Replace(ctx context.Context, key string, revision int64, value []byte) (bool, error)
	Delete(ctx context.Context, key string) error
}

// Config is what is needed.
type Config struct {
	// File holds the keys beside the data, or an operator's configuration.
	File string
	// Own are the transformers of an operator's configuration, which the library
	// follows; nil when the file beside the data counts.
	Own value.ResourceTransformers
	// OwnResources are those built-in ones that an operator's configuration may encrypt.
	OwnResources []schema.GroupResource
	// OwnCovers says whether it may encrypt a resource; nil for none.
	OwnCovers func(schema.GroupResource) bool
	// Definitions are resources that say which kinds there are.
	Definitions []schema.GroupResource
	// CustomPrefix is where the objects of added kinds are, below Prefix.
	CustomPrefix string
	Database     Database
	// Prefix begins all keys of the database.
	Prefix string
	// Settle is how long a write may take at most.
	Settle time.Duration
	Clock  clock.WithTicker
}

// secrets is what the file beside the data is about.
var secrets = schema.GroupResource{Resource: "secrets"}

// Keeper knows the keys in use.
type Keeper struct {
	config Config
	inUse  atomic.Pointer[cipher]

	mu      sync.Mutex // guards what follows
	hash    string     // of the file in use, empty for none
	since   time.Time  // when it came into use
	problem string     // why the file as it is now is not in use
	changed chan struct{}
}

// TransformerForResource implements value.ResourceTransformers.
func (k *Keeper) TransformerForResource(r schema.GroupResource) value.Transformer {
	if k.config.Own != nil {
		return k.config.Own.TransformerForResource(r)
	}
	if r != secrets {
		return nil
	}
	return current{k}
}

// transformer is how a resource is stored; one that is not encrypted is told from one
// that is, all the same.
func (k *Keeper) transformer(r kept) value.Transformer {
	if t := k.TransformerForResource(r.GroupResource); t != nil {
		return t
	}
	return identity.NewEncryptCheckTransformer()
}

// current is the cipher that is in use at the moment.
type current struct{ *Keeper }

// TransformFromStorage implements value.Transformer.
func (c current) TransformFromStorage(ctx context.Context, data []byte, about value.Context) ([]byte, bool, error) {
	return c.inUse.Load().TransformFromStorage(ctx, data, about)
}

// TransformToStorage implements value.Transformer.
func (c current) TransformToStorage(ctx context.Context, data []byte, about value.Context) ([]byte, error) {
	return c.inUse.Load().TransformToStorage(ctx, data, about)
}

// Hash tells which content of the file is in use, and whether all writes are done
// that began with another.
func (k *Keeper) Hash() (hash string, settled bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.hash, k.config.Own != nil || k.config.Clock.Since(k.since) >= k.config.Settle
}

// Changed is told when another content of the file is in use.
func (k *Keeper) Changed() <-chan struct{} { return k.changed }

// Run follows the file until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	if k.config.Own != nil {
		return // The library does, if it is told to.
	}
	ticker := k.config.Clock.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			k.complain(ctx, k.follow(ctx))
		}
	}
}

// follow takes the file as it is now, if it is another than that in use and what is
// stored can be read with it.
func (k *Keeper) follow(ctx context.Context) error {
	content, err := encryption.Read(k.config.File)
	if err != nil {
		return err
	}
	before, _ := k.Hash()
	if content == nil {
		if before == "" {
			return nil
		}
		return fmt.Errorf("%s is gone; restore it, or no Secret can be read after this process has ended", k.config.File)
	}
	if encryption.Hash(content) == before {
		return nil
	}
	c, err := parse(k.config.File, content)
	if err != nil {
		return err
	}
	if err := k.readable(ctx, c); err != nil {
		return err
	}
	if stored, _, err := k.config.Database.Get(ctx, k.witness()); err != nil {
		return err
	} else if stored != nil {
		if err := k.notOlder(encryption.KeyOf(stored), c); err != nil {
			return err
		}
	}
	if len(c.keys) == 1 {
		// Before that, a server that starts may still write with the other key.
		if err := k.makeWitness(ctx, c, false); err != nil {
			return err
		}
	}
	k.use(c, encryption.Hash(content))
	klog.FromContext(ctx).Info("The keys of stored Secrets were changed", "file", k.config.File, "keys", displayed(c.keys))
	return nil
}

// complain logs a problem once, and remembers it.
func (k *Keeper) complain(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.problem {
		klog.FromContext(ctx).Error(err, "The keys of stored Secrets cannot be used as they are; those of before stay in use")
	}
	k.problem = text
}

func (k *Keeper) use(c cipher, hash string) {
	k.inUse.Store(&c)
	k.mu.Lock()
	k.hash, k.since = hash, k.config.Clock.Now()
	k.mu.Unlock()
	select {
	case k.changed <- struct{}{}:
	default:
	}
}
