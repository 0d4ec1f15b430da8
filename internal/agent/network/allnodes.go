package network

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/node/peer"
)

// AllNodes reads what the API server tells this node of all nodes.
func AllNodes(config *rest.Config) (cache.ListerWatcher, error) {
	types := runtime.NewScheme()
	types.AddKnownTypes(peer.GroupVersion, &peer.Node{}, &peer.NodeList{})
	metav1.AddToGroupVersion(types, peer.GroupVersion)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &peer.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(types).WithoutConversion()
	config.QPS, config.UserAgent = -1, "everynode-agent"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the nodes' networks: %w", err)
	}
	lw := cache.NewListWatchFromClient(client, peer.Resource, metav1.NamespaceAll, fields.Everything())
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.ListWithContext(ctx, o)
			return list, explain(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := lw.WatchWithContext(ctx, o)
			return w, explain(err)
		},
	}, nil
}

// explain says what to do when the API server does not know what is asked for.
func explain(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf(
			"the API server is older than this agent and does not tell it of other nodes' networks; update the servers first: "+
				"%w",
			err,
		)
	}
	return err
}

// inbox takes what is said of nodes. It keeps their names only, to know who has gone
// when all are told again.
type inbox struct {
	note  func(name string, now facts)
	names map[string]bool
	// full is closed once all nodes were told.
	full chan struct{}
}

var _ cache.ReflectorStore = &inbox{}

// newInbox returns an inbox. Those who are remembered have gone if they are not told of.
func newInbox(note func(name string, now facts), remembered map[string]bool) *inbox {
	return &inbox{note: note, names: remembered, full: make(chan struct{})}
}

// Add implements cache.ReflectorStore.
func (i *inbox) Add(obj any) error { return i.Update(obj) }

// Update implements cache.ReflectorStore.
func (i *inbox) Update(obj any) error {
	n, ok := obj.(*peer.Node)
	if !ok {
		return fmt.Errorf("the API server tells of a %T in place of a node", obj)
	}
	i.names[n.Name] = true
	i.note(n.Name, factsOf(n))
	return nil
}

// Delete implements cache.ReflectorStore.
func (i *inbox) Delete(obj any) error {
	n, ok := obj.(*peer.Node)
	if !ok {
		return fmt.Errorf("the API server tells of a %T in place of a node", obj)
	}
	delete(i.names, n.Name)
	i.note(n.Name, facts{})
	return nil
}

// Replace implements cache.ReflectorStore.
func (i *inbox) Replace(all []any, _ string) error {
	before := i.names
	i.names = make(map[string]bool, len(all))
	for _, obj := range all {
		if err := i.Update(obj); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !i.names[name] {
			i.note(name, facts{})
		}
	}
	select {
	case <-i.full:
	default:
		close(i.full)
	}
	return nil
}

// Resync implements cache.ReflectorStore; nothing is to be told again.
func (i *inbox) Resync() error { return nil }
