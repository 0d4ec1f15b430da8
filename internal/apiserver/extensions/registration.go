package extensions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
)

// registrar makes an APIService for each group and version that this process serves,
// and takes it away when it does not serve it any more: clients see from APIServices
// which groups there are. The library keeps the objects; this says which.
type registrar struct {
	keeper      autoregister.AutoAPIServiceRegistration
	definitions cache.Indexer
	services    listers.APIServiceLister
	// builtin are versions that this process serves without any definition; none
	// may take their APIService.
	builtin map[schema.GroupVersion]bool
	own     []string
}

// byGroup finds definitions: with ten thousand of them, nobody looks through all at each
// change of one.
const byGroup = "everynode/group"

func groupOfDefinition(obj any) ([]string, error) {
	d, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, fmt.Errorf("%T is no definition", obj)
	}
	return []string{d.Spec.Group}, nil
}

// registrationWorkers write APIServices.
const registrationWorkers = 5

// register has APIServices kept from the moment that the server runs. It is ready when
// all of its own are known.
func (a *Aggregator) register(
	behind *genericapiserver.GenericAPIServer, custom *CustomResources, offered []schema.GroupVersion,
) error {
	client, err := aggregatorclient.NewForConfig(a.server.GenericAPIServer.LoopbackClientConfig)
	if err != nil {
		return fmt.Errorf("make the client of APIServices: %w", err)
	}
	services := a.server.APIRegistrationInformers.Apiregistration().V1().APIServices()
	keeper := autoregister.NewAutoRegisterController(services, client.ApiregistrationV1())
	definitions := custom.definitions()
	r := &registrar{
		keeper: keeper, definitions: definitions.Informer().GetIndexer(), services: services.Lister(),
		builtin: map[schema.GroupVersion]bool{apiregistrationv1.SchemeGroupVersion: true},
	}
	for _, o := range offered {
		r.builtin[o] = true
	}
	discovery := a.server.GenericAPIServer.AggregatedDiscoveryGroupManager.WithSource(aggregated.BuiltinSource)
	for _, version := range served(behind.ListedPaths()) {
		if r.builtin[version] {
			continue
		}
		r.builtin[version] = true
		service := builtinService(version)
		r.own = append(r.own, service.Name)
		keeper.AddAPIServiceToSync(service)
		group, own := int(service.Spec.GroupPriorityMinimum), int(service.Spec.VersionPriority)
		discovery.SetGroupVersionPriority(metav1.GroupVersion(version), group, own)
	}
	if err := definitions.Informer().AddIndexers(cache.Indexers{byGroup: groupOfDefinition}); err != nil {
		return fmt.Errorf("follow CustomResourceDefinitions by group: %w", err)
	}
	handler, err := definitions.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { r.follow(obj) },
		UpdateFunc: func(old, obj any) { r.follow(old); r.follow(obj) },
		DeleteFunc: func(obj any) { r.follow(obj) },
	})
	if err != nil {
		return fmt.Errorf("follow CustomResourceDefinitions: %w", err)
	}
	return a.server.GenericAPIServer.AddPostStartHook(
		"everynode/registration",
		func(c genericapiserver.PostStartHookContext) error {
			if !cache.WaitForCacheSync(c.Done(), handler.HasSynced) {
				return nil // the server has been stopped
			}
			go keeper.Run(registrationWorkers, c.Done())
			return r.wait(c)
		},
	)
}

// wait returns when the APIServices of built-in groups are known.
func (r *registrar) wait(ctx context.Context) error {
	known := func(name string) bool { _, err := r.services.Get(name); return err == nil }
	for slices.ContainsFunc(r.own, func(name string) bool { return !known(name) }) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// follow looks at the versions of a definition that is new, changed or gone.
func (r *registrar) follow(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	definition, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return
	}
	all, err := r.definitions.ByIndex(byGroup, definition.Spec.Group)
	if err != nil {
		return // it reads memory
	}
	for i := range definition.Spec.Versions {
		version := schema.GroupVersion{Group: definition.Spec.Group, Version: definition.Spec.Versions[i].Name}
		switch {
		case r.builtin[version]:
		case slices.ContainsFunc(all, func(d any) bool { return serves(d, version) }):
			r.keeper.AddAPIServiceToSync(r.customService(version))
		default:
			r.keeper.RemoveAPIServiceToSync(serviceName(version))
		}
	}
}

func serves(obj any, version schema.GroupVersion) bool {
	d, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	return ok && d.Spec.Group == version.Group &&
		slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == version.Version && v.Served
		})
}

// served reads the groups and versions from the paths that a server has.
func served(paths []string) (out []schema.GroupVersion) {
	for _, path := range paths {
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		switch {
		case path == "/api/v1":
			out = append(out, schema.GroupVersion{Version: "v1"})
		case len(parts) == 3 && parts[0] == "apis" && parts[2] != "":
			out = append(out, schema.GroupVersion{Group: parts[1], Version: parts[2]})
		}
	}
	return out
}

func serviceName(v schema.GroupVersion) string { return v.Version + "." + v.Group }

func localService(v schema.GroupVersion, groupPriority, versionPriority int32) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName(v)},
		Spec: apiregistrationv1.APIServiceSpec{
			Group:                v.Group,
			Version:              v.Version,
			GroupPriorityMinimum: groupPriority,
			VersionPriority:      versionPriority,
		},
	}
}

// customService comes after all that the process itself serves: after its groups, and in one
// of its groups after its versions. Clients take the first version of a group for their
// requests, and would be led away from the server's own kinds by a definition.
func (r *registrar) customService(v schema.GroupVersion) *apiregistrationv1.APIService {
	for own := range r.builtin {
		if own.Group == v.Group {
			service := builtinService(v)
			service.Spec.VersionPriority = lastVersion
			return service
		}
	}
	return localService(v, 1000, 100)
}

const (
	// ownVersion is the priority of the server's own versions: above 100, which the library gives
	// those of definitions where it lists all groups at once.
	ownVersion = 1000
	// lastVersion is the lowest priority of a version.
	lastVersion = 1
)

// order is that of built-in groups in lists, and of the words that kubectl looks up:
// "events" is the core group's. The distances leave room for groups of others.
var order = []string{
	"", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch",
	"certificates.k8s.io",
	"networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io", "apiextensions.k8s.io",
	"admissionregistration.k8s.io",
	"scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io", "discovery.k8s.io", "flowcontrol.apiserver.k8s.io",
}

func builtinService(v schema.GroupVersion) *apiregistrationv1.APIService {
	place := slices.Index(order, v.Group)
	if place < 0 {
		place = len(order)
	}
	return localService(v, int32(18000-100*place), ownVersion)
}
