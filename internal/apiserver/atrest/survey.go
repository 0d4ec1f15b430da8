package atrest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/everynode/everynode/internal/storage/encryption"
)

// Bounds of one request to rewrite: a client asks again while something is left.
const (
	rewriteTime    = 10 * time.Second
	rewriteWorkers = 16
)

// shortKey leaves out the provider of the keys that Everynode makes.
func shortKey(key string) string { return strings.TrimPrefix(key, encryption.SecretBox) }

// kept is a resource, and where its objects are.
type kept struct {
	schema.GroupResource
	below string
}

// builtIn is a resource that the server itself serves.
func (k *Keeper) builtIn(r schema.GroupResource) kept {
	name := r.Resource
	if r.Group != "" {
		name = r.Group + "/" + r.Resource
	}
	return kept{r, k.config.Prefix + "/" + name + "/"}
}

// added lists the resources of added kinds of which something is stored, whether there is
// a definition or not. It takes a look at the database for each resource.
func (k *Keeper) added(ctx context.Context) (out []kept, err error) {
	if k.config.CustomPrefix == "" {
		return nil, nil
	}
	below := k.config.Prefix + "/" + k.config.CustomPrefix
	for from := below; ; {
		key, err := k.config.Database.First(ctx, below, from)
		if err != nil || key == "" {
			return out, err
		}
		group, rest, _ := strings.Cut(strings.TrimPrefix(key, below), "/")
		resource, _, whole := strings.Cut(rest, "/")
		if !whole {
			from = key + "\x00"
			continue
		}
		one := kept{schema.GroupResource{Group: group, Resource: resource}, below + group + "/" + resource + "/"}
		out = append(out, one)
		from = strings.TrimSuffix(one.below, "/") + "0" // the character that follows the slash
	}
}

// each calls f for every stored value of a resource. The witness is one of the Secrets.
func (k *Keeper) each(ctx context.Context, r kept, f func(key string, value []byte, revision int64) error) error {
	if r.GroupResource == secrets && k.config.Own == nil {
		stored, revision, err := k.config.Database.Get(ctx, k.witness())
		if err == nil && stored != nil {
			err = f(k.witness(), stored, revision)
		}
		if err != nil {
			return err
		}
	}
	return k.config.Database.Each(ctx, r.below, f)
}

// count counts the stored objects of a resource by their key, and tells the key of
// the witness, which is no object.
func (k *Keeper) count(ctx context.Context, r kept) (stored map[string]int, witness string, err error) {
	stored = map[string]int{}
	err = k.each(ctx, r, func(key string, value []byte, _ int64) error {
		if key == k.witness() {
			witness = encryption.KeyOf(value)
		} else {
			stored[encryption.KeyOf(value)]++
		}
		return nil
	})
	return stored, witness, err
}

// resources are those that may be encrypted.
func (k *Keeper) resources(ctx context.Context) (out []kept, err error) {
	if k.config.Own == nil {
		return []kept{k.builtIn(secrets)}, nil
	}
	for _, r := range k.config.OwnResources {
		out = append(out, k.builtIn(r))
	}
	added, err := k.added(ctx)
	for _, r := range added {
		if k.config.OwnCovers != nil && k.config.OwnCovers(r.GroupResource) {
			out = append(out, r)
		}
	}
	return out, err
}

// Status tells how what is stored is encrypted.
func (k *Keeper) Status(ctx context.Context) (encryption.Status, error) {
	hash, settled := k.Hash()
	k.mu.Lock()
	out := encryption.Status{
		File:    k.config.File,
		Hash:    hash,
		Own:     k.config.Own != nil,
		Settled: settled,
		Problem: k.problem,
	}
	k.mu.Unlock()
	resources, err := k.resources(ctx)
	if err != nil {
		return out, err
	}
	for _, r := range resources {
		key, err := writes(ctx, k.transformer(r))
		if err != nil {
			return out, err
		}
		stored, witness, err := k.count(ctx, r)
		if err != nil {
			return out, err
		}
		if witness != encryption.Plain && witness != key {
			stored[witness]++ // It is to be rewritten, too.
		}
		out.Resources = append(out.Resources, encryption.Resource{Name: r.String(), Writes: key, Stored: stored})
	}
	return out, nil
}

// Rewrite writes objects again that are not as they would be written now, for some
// seconds, and says how many are left.
func (k *Keeper) Rewrite(ctx context.Context) (out encryption.Rewritten, err error) {
	until := k.config.Clock.Now().Add(rewriteTime)
	if c := k.inUse.Load(); c != nil {
		if err := k.makeWitness(ctx, *c, false); err != nil {
			return out, err
		}
	}
	resources, err := k.resources(ctx)
	if err != nil {
		return out, err
	}
	for _, r := range resources {
		if err := k.rewrite(ctx, r, until, &out); err != nil {
			return out, fmt.Errorf("rewrite the stored %s: %w", r, err)
		}
	}
	return out, nil
}

func (k *Keeper) rewrite(ctx context.Context, r kept, until time.Time, out *encryption.Rewritten) error {
	t := k.transformer(r)
	workers, working := errgroup.WithContext(ctx)
	workers.SetLimit(rewriteWorkers)
	done := make(chan bool)
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		for rewritten := range done {
			if rewritten {
				out.Rewritten++
			} else {
				out.Left++
			}
		}
	}()
	err := k.each(working, r, func(key string, stored []byte, revision int64) error {
		plain, stale, err := t.TransformFromStorage(working, stored, value.DefaultContext(key))
		switch {
		case err != nil:
			return fmt.Errorf("decrypt %s: %w", key, err)
		case !stale:
		case k.config.Clock.Now().After(until):
			done <- false
		default:
			workers.Go(func() error { return k.replace(working, t, key, plain, revision, done) })
		}
		return nil
	})
	if failed := workers.Wait(); failed != nil {
		err = failed // and the reading ended because of that
	}
	close(done)
	<-counted
	return err
}

// replace writes one value again. One that was written meanwhile counts as left, since
// that may have been with another key.
func (k *Keeper) replace(
	ctx context.Context, t value.Transformer, key string, plain []byte, revision int64, done chan<- bool,
) error {
	again, err := t.TransformToStorage(ctx, plain, value.DefaultContext(key))
	if err != nil {
		return fmt.Errorf("encrypt %s: %w", key, err)
	}
	replaced, err := k.config.Database.Replace(ctx, key, revision, again)
	if err == nil {
		done <- replaced
	}
	return err
}
