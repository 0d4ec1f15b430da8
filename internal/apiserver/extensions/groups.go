package extensions

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
)

// groups lists the API groups as clients of before aggregated discovery read them.
type groups struct {
	lister     listers.APIServiceLister
	serializer runtime.NegotiatedSerializer
	offered    []schema.GroupVersion
}

// listGroups replaces the aggregator's list, which has nothing but APIServices.
func (a *Aggregator) listGroups(serializer runtime.NegotiatedSerializer, offered []schema.GroupVersion) {
	g := &groups{
		lister:     a.server.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister(),
		serializer: serializer,
		offered:    offered,
	}
	generic := a.server.GenericAPIServer
	mux := generic.Handler.NonGoRestfulMux
	for _, path := range []string{"/apis", "/apis/"} {
		mux.Unregister(path)
	}
	mux.Handle(
		"/apis",
		aggregated.WrapAggregatedDiscoveryToHandler(
			g, generic.AggregatedDiscoveryGroupManager, generic.PeerAggregatedDiscoveryManager,
		),
	)
	mux.UnlistedHandle("/apis/", g)
}

// ServeHTTP implements http.Handler.
func (g *groups) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	services, err := g.lister.List(labels.Everything())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	list := &metav1.APIGroupList{Groups: groupsOf(services, g.offered)}
	responsewriters.WriteObjectNegotiated(
		g.serializer, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, r, http.StatusOK, list, false,
	)
}

// groupsOf lists the group of APIServices itself, then those that APIServices are for,
// by priority, then what is offered and nobody has taken over.
func groupsOf(services []*apiregistrationv1.APIService, offered []schema.GroupVersion) []metav1.APIGroup {
	out := []metav1.APIGroup{groupOf(apiregistrationv1.SchemeGroupVersion)}
	taken := map[string]bool{}
	for _, ofGroup := range helper.SortedByGroupAndVersion(services) {
		name := ofGroup[0].Spec.Group
		if name == "" {
			continue // it has a list of its own, at /api
		}
		taken[name] = true
		versions := make([]schema.GroupVersion, 0, len(ofGroup))
		for _, s := range ofGroup {
			versions = append(versions, schema.GroupVersion{Group: name, Version: s.Spec.Version})
		}
		out = append(out, groupOf(versions...))
	}
	for _, o := range offered {
		if !taken[o.Group] {
			out = append(out, groupOf(o))
		}
	}
	return out
}

// groupOf describes a group with these versions, the preferred one first.
func groupOf(versions ...schema.GroupVersion) metav1.APIGroup {
	group := metav1.APIGroup{Name: versions[0].Group}
	for _, v := range versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v.String(), Version: v.Version})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}
