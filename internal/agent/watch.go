package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// sources are the watches of a node: its pods, its own object, and all services with their endpoints and namespaces.
type sources struct {
	pods       cache.SharedIndexInformer
	node       cache.SharedIndexInformer
	services   cache.SharedIndexInformer
	slices     cache.SharedIndexInformer
	namespaces cache.SharedIndexInformer
	nodeName   string
}

func newSources(client kubernetes.Interface, nodeName string) *sources {
	factory := func(tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(tweak),
			informers.WithTransform(dropUnread))
	}
	byField := func(field string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) { o.FieldSelector = fields.OneTermEqualSelector(field, nodeName).String() }
	}
	all := factory(func(*metav1.ListOptions) {})
	return &sources{
		pods:       factory(byField("spec.nodeName")).Core().V1().Pods().Informer(),
		node:       factory(byField("metadata.name")).Core().V1().Nodes().Informer(),
		services:   all.Core().V1().Services().Informer(),
		slices:     all.Discovery().V1().EndpointSlices().Informer(),
		namespaces: all.Core().V1().Namespaces().Informer(),
		nodeName:   nodeName,
	}
}

// dropUnread saves the memory of what no node reads. Of endpoint slices and namespaces there are many, and little is read.
func dropUnread(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}}, nil
	case *corev1.Service:
		o.Annotations, o.OwnerReferences = nil, nil
	case *discoveryv1.EndpointSlice:
		o.Annotations, o.OwnerReferences = nil, nil
		for i := range o.Endpoints {
			o.Endpoints[i].TargetRef, o.Endpoints[i].DeprecatedTopology = nil, nil
		}
	}
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// feed tells p of the node's pods. The function returned says whether p was told of all that there were at first.
func (s *sources) feed(p *pods) (cache.InformerSynced, error) {
	registration, err := s.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*corev1.Pod); ok {
				p.podChanged(pod)
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok1 := before.(*corev1.Pod)
			pod, ok2 := after.(*corev1.Pod)
			if !ok1 || !ok2 {
				return
			}
			// A watch that broke may miss that a pod was deleted and another one got its name.
			if old.UID != pod.UID {
				p.podDeleted(old)
			}
			p.podChanged(pod)
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				p.podDeleted(pod)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return registration.HasSynced, nil
}

// run watches until ctx ends. Ready is called once everything was listed.
func (s *sources) run(ctx context.Context, handled cache.InformerSynced, ready func()) {
	logger := klog.FromContext(ctx)
	logger.Info("Reading the node's pods from the API server; until that is done only static pods are started, and what runs, runs on")
	for _, informer := range []cache.SharedIndexInformer{s.pods, s.node, s.services, s.slices, s.namespaces} {
		go informer.Run(ctx.Done())
	}
	if cache.WaitForCacheSync(ctx.Done(), s.node.HasSynced, s.services.HasSynced, handled) {
		logger.Info("Read the node's pods from the API server", "pods", len(s.allPods()))
		ready()
	}
	<-ctx.Done()
}

// ownNode is the node's object, nil if it is not registered.
func (s *sources) ownNode() *corev1.Node {
	obj, ok, err := s.node.GetStore().GetByKey(s.nodeName)
	if err != nil || !ok {
		return nil
	}
	node, _ := obj.(*corev1.Node)
	return node
}

// pod is the node's pod of that name, nil if there is none.
func (s *sources) pod(namespace, name string) *corev1.Pod {
	obj, ok, err := s.pods.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return nil
	}
	pod, _ := obj.(*corev1.Pod)
	return pod
}

// allPods are the node's pods.
func (s *sources) allPods() []*corev1.Pod {
	items := s.pods.GetStore().List()
	out := make([]*corev1.Pod, 0, len(items))
	for _, item := range items {
		if pod, ok := item.(*corev1.Pod); ok {
			out = append(out, pod)
		}
	}
	return out
}

func (s *sources) serviceLister() corelisters.ServiceLister {
	return corelisters.NewServiceLister(s.services.GetIndexer())
}
