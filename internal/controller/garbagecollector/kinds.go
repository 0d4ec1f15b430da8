package garbagecollector

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/everynode/everynode/internal/controller/garbagecollector/graph"
)

// kinds are those whose objects may own or be owned, in all versions that references
// can name. Some come and go.
type kinds struct {
	builtin []Resource

	mu     sync.RWMutex // guards what follows
	byKind map[kindKey]Resource
	// first is, for each kind, the version in which its objects are watched.
	first map[schema.GroupKind]string
}

type kindKey struct{ apiVersion, kind string }

func keyOf(r Resource) kindKey { return kindKey{r.GVK.GroupVersion().String(), r.GVK.Kind} }

func newKinds(builtin []Resource) *kinds {
	k := &kinds{builtin: builtin}
	k.set(nil)
	return k
}

// set replaces the added kinds. It returns the resources to watch of them, and tells of
// which kinds the answers are others than before.
func (k *kinds) set(added []Resource) (watched []Resource, changed func(apiVersion, kind string) bool) {
	byKind := make(map[kindKey]Resource, len(k.builtin)+len(added))
	first := make(map[schema.GroupKind]string, len(k.builtin)+len(added))
	for i, r := range append(k.builtin[:len(k.builtin):len(k.builtin)], added...) {
		key, kind := keyOf(r), r.GVK.GroupKind()
		if _, known := byKind[key]; known {
			continue // one kind under several names: the first counts
		}
		byKind[key] = r
		if _, known := first[kind]; known {
			continue
		}
		first[kind] = key.apiVersion
		if i >= len(k.builtin) {
			watched = append(watched, r)
		}
	}
	k.mu.Lock()
	oldKinds, oldFirst := k.byKind, k.first
	k.byKind, k.first = byKind, first
	k.mu.Unlock()
	return watched, func(apiVersion, kind string) bool {
		key := kindKey{apiVersion, kind}
		before, was := oldKinds[key]
		after, is := byKind[key]
		return was != is || before.Namespaced != after.Namespaced ||
			was && oldFirst[before.GVK.GroupKind()] != first[after.GVK.GroupKind()]
	}
}

func (k *kinds) find(apiVersion, kind string) (Resource, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	r, ok := k.byKind[kindKey{apiVersion, kind}]
	return r, ok
}

// watched returns one resource for each kind, in no order.
func (k *kinds) watched() (out []Resource) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for kind, apiVersion := range k.first {
		out = append(out, k.byKind[kindKey{apiVersion, kind.Kind}])
	}
	return out
}

// isBuiltin says whether a resource is one of those that are always there.
func (k *kinds) isBuiltin(r Resource) bool {
	return slices.ContainsFunc(k.builtin, func(b Resource) bool { return b.GVR == r.GVR })
}

func (k *kinds) size() int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return len(k.first)
}

// scope implements graph.ScopeFunc.
func (k *kinds) scope(apiVersion, kind string) graph.Scope {
	r, ok := k.find(apiVersion, kind)
	switch {
	case !ok:
		return graph.ScopeUnknown
	case r.Namespaced:
		return graph.ScopeNamespaced
	default:
		return graph.ScopeCluster
	}
}

// shown implements graph.ShownFunc.
func (k *kinds) shown(apiVersion, kind string) string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if r, ok := k.byKind[kindKey{apiVersion, kind}]; ok {
		return k.first[r.GVK.GroupKind()]
	}
	return apiVersion
}
