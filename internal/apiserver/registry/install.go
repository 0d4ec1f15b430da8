package registry

import (
	"fmt"
	"net"
	"slices"

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
	"github.com/everynode/everynode/internal/apiserver/registry/pod"
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
	Encoder func(resource schema.GroupResource, example runtime.Object) (
		func(key string, obj runtime.Object) ([]byte, error), error)
}

// storages is every built kind by resource.
type storages map[schema.GroupResource]*resource.Storage

// Served are the storages that are served, by version and path, such as "pods/status".
type Served map[schema.GroupVersion]map[string]rest.Storage

// Install builds the storage of every kind and serves it, group by group.
func Install(server *genericapiserver.GenericAPIServer, kinds []resource.Definition, d Dependencies) (Served, error) {
	built, targets := storages{}, &pod.Targets{}
	for _, kind := range kinds {
		s, err := kind.Build(d.Scheme, pod.AskPlacers(d.Storage, targets))
		if err != nil {
			return nil, err
		}
		built[kind.GroupVersionResource().GroupResource()] = s
	}
	starts, err := addBehaviour(built, d, targets)
	if err != nil {
		return nil, err
	}
	for name, start := range starts {
		if err := server.AddPostStartHook(name, starthook.UnlessStopped(start)); err != nil {
			return nil, fmt.Errorf("add the start hook %s: %w", name, err)
		}
	}
	paths, order := served(kinds, built, d)
	codecs, text := newCheckedCodecs(d.Codecs, kinds), textVersions(kinds)
	for _, name := range order {
		group := genericapiserver.NewDefaultAPIGroupInfo(name, d.Scheme, d.ParameterCodec, d.Codecs)
		group.NegotiatedSerializer = codecs
		for _, version := range group.PrioritizedVersions {
			group.VersionedResourcesStorageMap[version.Version] = paths[version]
			if text[version] {
				group.NegotiatedSerializer = textCodecs{codecs}
			}
		}
		install := server.InstallAPIGroup
		if name == "" {
			install = func(g *genericapiserver.APIGroupInfo) error {
				return server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, g)
			}
		}
		if err := install(&group); err != nil {
			return nil, fmt.Errorf("serve the API group %q: %w", name, err)
		}
	}
	return paths, nil
}

// served returns what is served, and the groups of it in their order.
func served(kinds []resource.Definition, built storages, d Dependencies) (paths Served, groups []string) {
	paths = Served{}
	add := func(version schema.GroupVersion, path string, s rest.Storage) {
		if paths[version] == nil {
			paths[version] = map[string]rest.Storage{}
		}
		if !slices.Contains(groups, version.Group) {
			groups = append(groups, version.Group)
		}
		paths[version][path] = s
	}
	for _, kind := range kinds {
		for path, s := range built[kind.GroupVersionResource().GroupResource()].Paths() {
			for _, version := range append([]schema.GroupVersion{kind.GroupVersion}, kind.OtherVersions...) {
				add(version, path, s)
			}
		}
	}
	for _, r := range reviewResources(d) {
		add(r.version, r.path, r.storage)
	}
	add(eventsVersion, "events", built[schema.GroupResource{Resource: "events"}].Main)
	return paths, groups
}
