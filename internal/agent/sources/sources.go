// Package sources watches what an agent knows of the API: its own pods and Node, and the Services of the cluster.
package sources

import (
	"context"
	"net/netip"

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

// Sources are the watches of a node: its pods, its own object, and all services with their endpoints and namespaces.
type Sources struct {
	Pods       cache.SharedIndexInformer
	Node       cache.SharedIndexInformer
	Services   cache.SharedIndexInformer
	Slices     cache.SharedIndexInformer
	Namespaces cache.SharedIndexInformer
	nodeName   string
}

// Handler is told of the node's pods; pods.Manager is one. It keeps the objects, which are shared and must not be
// changed.
type Handler interface {
	PodChanged(pod *corev1.Pod)
	PodDeleted(pod *corev1.Pod)
}

// New prepares the watches of a node; Run begins them.
func New(client kubernetes.Interface, nodeName string) *Sources {
	factory := func(tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(tweak),
			informers.WithTransform(dropUnread))
	}
	byField := func(field string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) { o.FieldSelector = fields.OneTermEqualSelector(field, nodeName).String() }
	}
	all := factory(func(*metav1.ListOptions) {})
	return &Sources{
		Pods:       factory(byField("spec.nodeName")).Core().V1().Pods().Informer(),
		Node:       factory(byField("metadata.name")).Core().V1().Nodes().Informer(),
		Services:   all.Core().V1().Services().Informer(),
		Slices:     all.Discovery().V1().EndpointSlices().Informer(),
		Namespaces: all.Core().V1().Namespaces().Informer(),
		nodeName:   nodeName,
	}
}

// dropUnread saves the memory of what no node reads. Of endpoint slices and namespaces there are many, and little is
// read.
func dropUnread(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID,
			ResourceVersion: o.ResourceVersion}}, nil
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

// Feed tells p of the node's pods. The function returned reports whether p was told of all that there were at first.
func (s *Sources) Feed(p Handler) (cache.InformerSynced, error) {
	registration, err := s.Pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*corev1.Pod); ok {
				p.PodChanged(pod)
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
				p.PodDeleted(old)
			}
			p.PodChanged(pod)
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				p.PodDeleted(pod)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return registration.HasSynced, nil
}

// Run watches until ctx ends. Ready is called once everything was listed.
func (s *Sources) Run(ctx context.Context, handled cache.InformerSynced, ready func()) {
	logger := klog.FromContext(ctx)
	logger.Info("Reading the node's pods from the API server; " +
		"until that is done only static pods are started, and what runs, runs on")
	for _, informer := range []cache.SharedIndexInformer{s.Pods, s.Node, s.Services, s.Slices, s.Namespaces} {
		go informer.Run(ctx.Done())
	}
	if cache.WaitForCacheSync(ctx.Done(), s.Node.HasSynced, s.Services.HasSynced, handled) {
		logger.Info("Read the node's pods from the API server", "pods", len(s.AllPods()))
		ready()
	}
	<-ctx.Done()
}

// OwnNode is the node's object, nil if it is not registered.
func (s *Sources) OwnNode() *corev1.Node {
	obj, ok, err := s.Node.GetStore().GetByKey(s.nodeName)
	if err != nil || !ok {
		return nil
	}
	node, _ := obj.(*corev1.Node)
	return node
}

// PodsSynced reports whether the node's pods were listed.
func (s *Sources) PodsSynced() bool { return s.Pods.HasSynced() }

// Pod is the node's pod of that name, nil if there is none.
func (s *Sources) Pod(namespace, name string) *corev1.Pod {
	obj, ok, err := s.Pods.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return nil
	}
	pod, _ := obj.(*corev1.Pod)
	return pod
}

// AllPods are the node's pods.
func (s *Sources) AllPods() []*corev1.Pod {
	items := s.Pods.GetStore().List()
	out := make([]*corev1.Pod, 0, len(items))
	for _, item := range items {
		if pod, ok := item.(*corev1.Pod); ok {
			out = append(out, pod)
		}
	}
	return out
}

// ServiceLister reads the Services that were seen.
func (s *Sources) ServiceLister() corelisters.ServiceLister {
	return corelisters.NewServiceLister(s.Services.GetIndexer())
}

// APIServers is where the control plane says that it answers: behind the service kubernetes.
func (s *Sources) APIServers() (out []netip.AddrPort) {
	obj, ok, err := s.Slices.GetStore().GetByKey("default/kubernetes")
	slice, is := obj.(*discoveryv1.EndpointSlice)
	if err != nil || !ok || !is {
		return nil
	}
	for _, e := range slice.Endpoints {
		for _, text := range e.Addresses {
			ip, err := netip.ParseAddr(text)
			for _, port := range slice.Ports {
				if err == nil && port.Port != nil {
					out = append(out, netip.AddrPortFrom(ip, uint16(*port.Port)))
				}
			}
		}
	}
	return out
}
