package extensions

import (
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/client-go/tools/cache"
)

// stoppable is the library's informers, as its own hooks of the start see them. One of
// the hooks asks again and again whether the definitions are known, and fails when the
// server is stopped meanwhile; that ends the process with the stacks of all goroutines.
// Here, HasSynced answers when they are, or when the server is stopped.
type stoppable struct {
	externalversions.SharedInformerFactory
	started chan struct{} // closed when stop is set
	stop    <-chan struct{}
}

func newStoppable(f externalversions.SharedInformerFactory) *stoppable {
	return &stoppable{SharedInformerFactory: f, started: make(chan struct{})}
}

// Start implements externalversions.SharedInformerFactory. It is called once, by a hook.
func (s *stoppable) Start(stop <-chan struct{}) {
	s.stop = stop
	close(s.started)
	s.SharedInformerFactory.Start(stop)
}

func (s *stoppable) Apiextensions() apiextensions.Interface {
	return stoppableGroup{s.SharedInformerFactory.Apiextensions(), s}
}

type stoppableGroup struct {
	apiextensions.Interface
	of *stoppable
}

func (g stoppableGroup) V1() crdinformers.Interface {
	return stoppableVersion{g.Interface.V1(), g.of}
}

type stoppableVersion struct {
	crdinformers.Interface
	of *stoppable
}

func (v stoppableVersion) CustomResourceDefinitions() crdinformers.TypedCustomResourceDefinitionInformer {
	return stoppableKind{v.Interface.CustomResourceDefinitions(), v.of}
}

type stoppableKind struct {
	crdinformers.TypedCustomResourceDefinitionInformer
	of *stoppable
}

func (k stoppableKind) Informer() cache.SharedIndexInformer {
	return stoppableInformer{k.TypedCustomResourceDefinitionInformer.Informer(), k.of}
}

type stoppableInformer struct {
	cache.SharedIndexInformer
	of *stoppable
}

func (i stoppableInformer) HasSynced() bool {
	<-i.of.started
	cache.WaitForCacheSync(i.of.stop, i.SharedIndexInformer.HasSynced)
	return true
}
