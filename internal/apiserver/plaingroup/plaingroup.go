// Package plaingroup serves API groups that are no storages: one handler answers for
// all of a group, and clients learn of it by discovery like of any other.
package plaingroup

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// Group is a version of an API group.
type Group struct {
	schema.GroupVersion
	// Resources are what there is in it.
	Resources []metav1.APIResource
	// Serve answers every path below the group's.
	Serve http.Handler
}

// Prefix is the path of the group's version, without a slash at its end.
func (g Group) Prefix() string { return "/apis/" + g.Group + "/" + g.Version }

// Install has a server serve the group.
func Install(server *genericapiserver.GenericAPIServer, g Group) {
	version := metav1.GroupVersionForDiscovery{GroupVersion: g.String(), Version: g.Version}
	group := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: g.Group,
		Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
	resources := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: g.String(),
		APIResources: g.Resources,
	}
	mux := server.Handler.NonGoRestfulMux
	for _, path := range []string{"/apis/" + g.Group, "/apis/" + g.Group + "/"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { Write(w, http.StatusOK, group) })
	}
	mux.HandleFunc(g.Prefix(), func(w http.ResponseWriter, _ *http.Request) { Write(w, http.StatusOK, resources) })
	mux.HandlePrefix(g.Prefix()+"/", g.Serve)
	server.DiscoveryGroupManager.AddGroup(group)
	if server.AggregatedDiscoveryGroupManager != nil {
		server.AggregatedDiscoveryGroupManager.AddGroupVersion(g.Group, g.discovery())
	}
}

func (g Group) discovery() apidiscoveryv2.APIVersionDiscovery {
	out := apidiscoveryv2.APIVersionDiscovery{Version: g.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, r := range g.Resources {
		scope := apidiscoveryv2.ScopeCluster
		if r.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		out.Resources = append(out.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource:     r.Name,
			Scope:        scope,
			Verbs:        slices.Clone(r.Verbs),
			ResponseKind: &metav1.GroupVersionKind{Group: g.Group, Version: g.Version, Kind: r.Kind},
		})
	}
	return out
}

// WriteError writes an error as the API's clients expect it.
func WriteError(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	Write(w, int(status.Code), status)
}

// Write writes an answer as JSON.
func Write(w http.ResponseWriter, code int, answer any) {
	data, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data) // a client that is gone is no concern of ours
}
