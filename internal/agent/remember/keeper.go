package remember

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// gather is how long news gather before they are written.
	gather = 2 * time.Second
	// rest is the least time between two times that the file is written; when writing
	// takes long it is restful times as long: endpoints of large clusters come and go
	// all the time.
	rest    = 10 * time.Second
	restful = 100
	// brokenSuffix is for a file that could not be read.
	brokenSuffix = ".broken"
)

// Sources are the node's caches; that of the nodes needs only this one.
type Sources struct {
	Nodes, Services, EndpointSlices, Namespaces cache.SharedIndexInformer
}

// Keeper writes down what a node knows.
type Keeper struct {
	path     string
	nodeName string
	sources  Sources
	clock    clock.WithTicker
	broken   bool
	news     chan struct{}
}

// NewKeeper returns a keeper of the file at that path and what the file holds, nil if
// nothing. The error says why the file could not be used, or what an earlier process left
// half written could not be removed; the keeper works all the same, and puts a broken
// file aside when it has a better one.
func NewKeeper(path, nodeName string, sources Sources, clk clock.WithTicker) (*Keeper, *Known, error) {
	known, err := Read(path)
	k := &Keeper{path: path, nodeName: nodeName, sources: sources, clock: clk, broken: err != nil, news: make(chan struct{}, 1)}
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
	}{{k.sources.Nodes, k.nodeHandler()}, {k.sources.Services, all}, {k.sources.EndpointSlices, all}, {k.sources.Namespaces, all}} {
		registration, err := source.informer.AddEventHandler(source.handler)
		if err != nil {
			return fmt.Errorf("watch what is to be remembered: %w", err)
		}
		told = append(told, registration.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), told...) {
		return nil
	}
	for pause := gather; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-k.news:
		}
		select {
		case <-ctx.Done():
		case <-k.clock.After(pause):
		}
		began := k.clock.Now()
		if err := k.save(); err != nil {
			klog.FromContext(ctx).Error(err, "What the node knows of services is not kept for its next start")
		}
		pause = max(rest, restful*k.clock.Since(began))
	}
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
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}, Spec: corev1.NodeSpec{PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs}}
}

func (k *Keeper) note() {
	select {
	case k.news <- struct{}{}:
	default:
	}
}

func (k *Keeper) save() error {
	if k.broken {
		if err := os.Rename(k.path, k.path+brokenSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("put %s aside, which is broken: %w", k.path, err)
		}
		k.broken = false
	}
	if err := replace(k.path, k.known()); err != nil {
		return fmt.Errorf("write %s: %w", k.path, err)
	}
	return nil
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
