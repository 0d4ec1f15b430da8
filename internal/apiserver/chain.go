package apiserver

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/everynode/everynode/internal/apiserver/extensions"
	"github.com/everynode/everynode/internal/apiserver/options"
	"github.com/everynode/everynode/internal/apiserver/podaccess"
	"github.com/everynode/everynode/internal/apiserver/registry"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/scheme"
	"github.com/everynode/everynode/internal/apiserver/webhookcalls"
	"github.com/everynode/everynode/internal/node/peer"
	"github.com/everynode/everynode/internal/pki"
)

// chain is what the servers of added kinds share with ours.
func (s *Server) chain(c *genericapiserver.Config, types *scheme.Set, client kubernetes.Interface,
	pods *podaccess.Access) extensions.Config {
	return extensions.Config{
		Generic: c, Informers: s.informers, Schemes: []*runtime.Scheme{types.Public},
		Storage:  s.storages.Foreign,
		Services: podaccess.NewServices(client), Webhooks: webhookcalls.New(c, pods, ownGroups()),
	}
}

// ownKinds are the kinds that this server itself serves, as the operator wants them.
func ownKinds(o *options.Objects) []resource.Definition {
	kinds := registry.Kinds()
	for i, k := range kinds {
		if k.GroupVersionResource() == corev1.SchemeGroupVersion.WithResource("events") {
			kinds[i] = k.KeptFor(o.EventLifetime)
		}
	}
	return kinds
}

// ownVersions are the groups and versions that this server answers for, whatever
// definitions there are.
func ownVersions() []schema.GroupVersion {
	own := []schema.GroupVersion{
		apiextensionsv1.SchemeGroupVersion, apiregistrationv1.SchemeGroupVersion, offered,
		authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion,
		peer.GroupVersion,
	}
	for _, k := range registry.Kinds() {
		own = append(append(own, k.GroupVersion), k.OtherVersions...)
	}
	return own
}

// offered is what this server answers for until others do.
var offered = metricsv1beta1.SchemeGroupVersion

// front is how servers of others are reached: as webhooks are. What we say of metrics
// holds until somebody has a better word.
func front(keys *pki.Bundle, pods *podaccess.Access) extensions.Front {
	f := extensions.Front{Dial: pods.DialService, Offered: []schema.GroupVersion{offered}}
	f.CertFile, f.KeyFile = keys.FrontProxyFiles()
	return f
}

// ownGroups are the groups that nobody but this server answers for.
func ownGroups() sets.Set[string] {
	groups := sets.New[string]()
	for _, v := range ownVersions() {
		groups.Insert(v.Group)
	}
	groups.Delete(offered.Group)
	return groups
}
