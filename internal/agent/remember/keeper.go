package remember

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Sources are the node's caches; that of the nodes needs only this one.
type Sources struct {
	Nodes, Services, EndpointSlices, Namespaces cache.SharedIndexInformer
}

// Keeper writes down what a node knows of Services.
type Keeper struct {
	file
	nodeName string
	sources  Sources
}

// NewKeeper returns a keeper of the file at that path and what the file holds, nil if
// nothing. The error says why the file could not be used, or what an earlier process left
// half written could not be removed; the keeper works all the same, and puts a broken
// file aside when it has a better one.
func NewKeeper(path, nodeName string, sources Sources, clk clock.WithTicker) (*Keeper, *Known, error) {
	known, err := Read(path)
	k := &Keeper{nodeName: nodeName, sources: sources,
		file: file{path: path, what: "services", broken: err != nil, clock: clk, news: make(chan struct{}, 1)}}
	k.file.replace = func() error { return replace(path, k.known()) }
	return k, known, errors.Join(err, clearUnfinished(path))
}

// Run keeps the file up to date until ctx ends, and does so a last time then.
func (k *Keeper) Run(ctx context.Context) error {
	all := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { k.note() }, UpdateFunc: func(any, any) { k.note() }, DeleteFunc: func(any) { k.note() },
	}
	var told []cache.InformerSynced
	for _, source := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{k.sources.Nodes, k.nodeHandler()},
		{k.sources.Services, all},
		{k.sources.EndpointSlices, all},
		{k.sources.Namespaces, all},
	} {
		registration, err := source.informer.AddEventHandler(source.handler)
		if err != nil {
			return fmt.Errorf("watch what is to be remembered: %w", err)
		}
		told = append(told, registration.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), told...) {
		return nil
	}
	k.file.run(ctx)
	return nil
}

// nodeHandler notes when what is remembered of the own node changes: the rest, such as
// its heartbeat, changes all the time.
func (k *Keeper) nodeHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if k.remembered(obj) != nil {
				k.note()
			}
		},
		UpdateFunc: func(old, obj any) {
			if !equality.Semantic.DeepEqual(k.remembered(old), k.remembered(obj)) {
				k.note()
			}
		},
	}
}

// remembered is what is kept of a node, which is what Services depend on; nil if it is
// not the own one.
func (k *Keeper) remembered(obj any) *corev1.Node {
	node, ok := obj.(*corev1.Node)
	if !ok || node.Name != k.nodeName {
		return nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels},
		Spec:       corev1.NodeSpec{PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs},
	}
}

func (k *Keeper) known() *Known {
	known := &Known{
		Services:       listed[*corev1.Service](k.sources.Services),
		EndpointSlices: listed[*discoveryv1.EndpointSlice](k.sources.EndpointSlices),
		Namespaces:     listed[*corev1.Namespace](k.sources.Namespaces),
	}
	for _, node := range listed[*corev1.Node](k.sources.Nodes) {
		if own := k.remembered(node); own != nil {
			known.Node = own
		}
	}
	return known
}

func listed[T any](informer cache.SharedIndexInformer) (out []T) {
	for _, obj := range informer.GetStore().List() {
		if t, ok := obj.(T); ok {
			out = append(out, t)
		}
	}
	return out
}
