package registry

import (
	"fmt"
	"net"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/apiserver/nodecall"
	"github.com/everynode/everynode/internal/apiserver/podaccess"
	"github.com/everynode/everynode/internal/apiserver/registry/service"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/starthook"
)

// Dependencies is what storages need from the server that they are installed in.
type Dependencies struct {
	Scheme         *runtime.Scheme
	Codecs         serializer.CodecFactory
	ParameterCodec runtime.ParameterCodec
	Storage        generic.RESTOptionsGetter
	// Agents is the way to the agents of nodes.
	Agents *nodecall.Caller
	// Pods is the way to pods.
	Pods        *podaccess.Access
	ServiceCIDR *net.IPNet
	Tokens      authenticator.Token
	Audiences   authenticator.Audiences
	Authorizer  authorizer.Authorizer
	Rules       authorizer.RuleResolver
	// ServiceAccountTokens makes the token subresource of service accounts.
	ServiceAccountTokens rest.Storage
	// Client reaches the server itself.
	Client kubernetes.Interface
	// Reservations is what the database knows of the names that the objects of an
	// open storage hold.
	Reservations func(schema.GroupResource) service.Reservations
	// Encoder makes of objects like the example what is stored of them at a key.
	Encoder func(resource schema.GroupResource, example runtime.Object) (func(key string, obj runtime.Object) ([]byte, error), error)
}

// storages is every built kind by resource.
type storages map[schema.GroupResource]*resource.Storage

// Served are the storages that are served, by version and path, such as "pods/status".
type Served map[schema.GroupVersion]map[string]rest.Storage

// Install builds the storage of every kind and serves it, group by group.
func Install(server *genericapiserver.GenericAPIServer, kinds []resource.Definition, d Dependencies) (Served, error) {
	built := storages{}
	for _, kind := range kinds {
		s, err := kind.Build(d.Scheme, d.Storage)
		if err != nil {
			return nil, err
		}
		built[kind.GroupVersionResource().GroupResource()] = s
	}
	starts, err := addBehaviour(built, d)
	if err != nil {
		return nil, err
	}
	for name, start := range starts {
		if err := server.AddPostStartHook(name, starthook.UnlessStopped(start)); err != nil {
			return nil, fmt.Errorf("add the start hook %s: %w", name, err)
		}
	}
	paths := Served{}
	var order []schema.GroupVersion
	add := func(version schema.GroupVersion, path string, s rest.Storage) {
		if paths[version] == nil {
			paths[version] = map[string]rest.Storage{}
			order = append(order, version)
		}
		paths[version][path] = s
	}
	for _, kind := range kinds {
		for path, s := range built[kind.GroupVersionResource().GroupResource()].Paths() {
			add(kind.GroupVersion, path, s)
		}
	}
	for _, r := range reviewResources(d) {
		add(r.version, r.path, r.storage)
	}
	add(eventsVersion, "events", built[schema.GroupResource{Resource: "events"}].Main)
	codecs, text := newCheckedCodecs(d.Codecs, kinds), textVersions(kinds)
	for _, version := range order {
		group := genericapiserver.NewDefaultAPIGroupInfo(version.Group, d.Scheme, d.ParameterCodec, d.Codecs)
		group.NegotiatedSerializer = codecs
		if text[version] {
			group.NegotiatedSerializer = textCodecs{codecs}
		}
		group.PrioritizedVersions = []schema.GroupVersion{version}
		group.VersionedResourcesStorageMap[version.Version] = paths[version]
		install := server.InstallAPIGroup
		if version.Group == "" {
			install = func(g *genericapiserver.APIGroupInfo) error {
				return server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, g)
			}
		}
		if err := install(&group); err != nil {
			return nil, fmt.Errorf("serve the API group %s: %w", version, err)
		}
	}
	return paths, nil
}
