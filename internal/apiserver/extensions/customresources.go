package extensions

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	endpointfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
)

// Storage opens the storage of resources whose objects the codec reads and writes.
// The version is the one that is stored; nil for that of each object.
type Storage func(codec runtime.Codec, version runtime.GroupVersioner) generic.RESTOptionsGetter

// Config is what both servers share with the one between them.
type Config struct {
	// Generic is that server's configuration before it was completed. It is copied.
	Generic   *genericapiserver.Config
	Informers informers.SharedInformerFactory
	Storage   Storage
	// Services leads from Services to who answers, and Webhooks to how they are called.
	Services webhook.ServiceResolver
	Webhooks webhook.AuthenticationInfoResolverWrapper
	// Schemes are those of the kinds in between; they have a part in the names of OpenAPI.
	Schemes []*runtime.Scheme
}

// copied is the configuration for one more server in the chain. What starts once stays
// with the original.
func (c *Config) copied() genericapiserver.Config {
	out := *c.Generic
	out.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	return out
}

// CustomResources serves CustomResourceDefinitions and their objects.
type CustomResources struct {
	server *apiextensionsserver.CustomResourceDefinitions
	known  crdinformers.CustomResourceDefinitionInformer
}

// NewCustomResources makes the last server of the chain.
func NewCustomResources(c Config) (*CustomResources, error) {
	config := c.copied()
	setOpenAPI(&config, customResourceDefinitions, c.Schemes)
	config.MergedResourceConfig = apiextensionsserver.DefaultAPIResourceConfigSource()
	stored := apiextensionsv1.SchemeGroupVersion
	config.RESTOptionsGetter = c.Storage(apiextensionsserver.Codecs.LegacyCodec(stored),
		runtime.NewMultiGroupVersioner(stored, schema.GroupKind{Group: stored.Group}))
	extended := apiextensionsserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: config, SharedInformerFactory: c.Informers},
		ExtraConfig: apiextensionsserver.ExtraConfig{
			CRDRESTOptionsGetter: c.Storage(unstructured.UnstructuredJSONScheme, nil),
			MasterCount:          1,
			ServiceResolver:      c.Services,
			AuthResolverWrapper:  c.Webhooks,
		},
	}
	// Until all definitions are known, nobody is told that there is no such kind.
	end := genericapiserver.NewEmptyDelegateWithCustomHandler(notfoundhandler.New(
		config.Serializer, endpointfilters.NoMuxAndDiscoveryIncompleteKey,
	))
	server, err := extended.Complete().New(end)
	if err != nil {
		return nil, fmt.Errorf("build the server of custom resources: %w", err)
	}
	out := &CustomResources{server, server.Informers.Apiextensions().V1().CustomResourceDefinitions()}
	server.Informers = newStoppable(server.Informers)
	return out, nil
}

// Delegate is what the server before it hands on to.
func (c *CustomResources) Delegate() genericapiserver.DelegationTarget {
	return c.server.GenericAPIServer
}

func (c *CustomResources) definitions() crdinformers.CustomResourceDefinitionInformer {
	return c.known
}
