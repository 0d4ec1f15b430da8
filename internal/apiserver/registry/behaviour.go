package registry

import (
	"context"
	"maps"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/internal/apiserver/podaccess"
	"github.com/everynode/everynode/internal/apiserver/registry/certificatesigningrequest"
	"github.com/everynode/everynode/internal/apiserver/registry/devices"
	"github.com/everynode/everynode/internal/apiserver/registry/job"
	"github.com/everynode/everynode/internal/apiserver/registry/namespace"
	"github.com/everynode/everynode/internal/apiserver/registry/pod"
	"github.com/everynode/everynode/internal/apiserver/registry/proxy"
	"github.com/everynode/everynode/internal/apiserver/registry/scale"
	"github.com/everynode/everynode/internal/apiserver/registry/service"
	"github.com/everynode/everynode/internal/apiserver/reviews"
)

var eventsVersion = eventsv1.SchemeGroupVersion

// start is what a kind does once the server answers.
type start func(context.Context) error

// addBehaviour adds what some kinds do besides being stored. It returns what is to be
// started, by the name under which readiness tells of it.
func addBehaviour(built storages, d Dependencies, targets *pod.Targets) (map[string]start, error) {
	core := func(resource string) schema.GroupResource { return schema.GroupResource{Resource: resource} }
	pods, nodes, budgets := built[core("pods")], built[core("nodes")], built[schema.GroupResource{
		Group:    "policy",
		Resource: "poddisruptionbudgets",
	}]
	targets.Follow(nodes.Store.Storage.Storage, nodes.Store.KeyFunc)
	access := pod.NewNodeAccess(pods.Store, nodes.Store, d.Agents)
	services := built[core("services")]
	for name, sub := range map[string]rest.Storage{
		"binding":     pod.NewBindingREST(pods.Store, targets),
		"eviction":    pod.NewEvictionREST(pods.Store, pods.StatusStore, budgets.Store, budgets.StatusStore),
		"log":         pod.NewLogREST(access),
		"exec":        pod.NewExecREST(access, d.Authorizer),
		"attach":      pod.NewAttachREST(access, d.Authorizer),
		"portforward": pod.NewPortForwardREST(access, d.Authorizer),
		"proxy":       proxy.NewPods(pods.Store, d.Pods),
		// Parts of the specification that the pod itself does not let change.
		"ephemeralcontainers": pods.NewPart(pod.EphemeralContainers()),
		"resize":              pods.NewPart(pod.Resize()),
	} {
		pods.Subresources[name] = sub
	}
	nodes.Subresources["proxy"] = proxy.NewNodes(nodes.Store, d.Agents, d.Pods)
	services.Subresources["proxy"] = proxy.NewServices(services.Store, pods.Store, podaccess.NewServices(d.Client), d.Pods)
	namespace.Extend(built[core("namespaces")])
	for _, resource := range []schema.GroupResource{
		{Group: "apps", Resource: "deployments"}, {Group: "apps", Resource: "replicasets"},
		{Group: "apps", Resource: "statefulsets"}, core("replicationcontrollers"),
	} {
		workload := built[resource]
		workload.Subresources["scale"] = scale.New(workload.Store)
	}
	job.Extend(built[schema.GroupResource{Group: "batch", Resource: "jobs"}])
	certificatesigningrequest.Extend(
		built[schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}],
	)
	devices.Extend(
		built[resourcev1.Resource("resourceclaims")], built[resourcev1.Resource("resourceclaimtemplates")],
		built[core("namespaces")].Store, d.Authorizer,
	)
	built[core("serviceaccounts")].Subresources["token"] = d.ServiceAccountTokens
	repair, err := extendAddresses(built, d)
	if err != nil {
		return nil, err
	}
	return map[string]start{"everynode/service-addresses": repair.Start}, nil
}

// extendAddresses has Services given addresses, and IPAddresses show whose they are.
func extendAddresses(built storages, d Dependencies) (*service.Repair, error) {
	services := schema.GroupResource{Resource: "services"}
	addresses, cidrs := networkingResource("ipaddresses"), networkingResource("servicecidrs")
	encode, err := d.Encoder(addresses, built[addresses].Definition.New())
	if err != nil {
		return nil, err
	}
	return service.Extend(service.Parts{
		Services: built[services], Addresses: built[addresses], CIDRs: built[cidrs],
		Reserved: d.Reservations(services), ReservedAddresses: d.Reservations(addresses), Networks: d.Reservations(cidrs),
		Encode: encode, Client: d.Client, CIDR: d.ServiceCIDR,
	})
}

func networkingResource(resource string) schema.GroupResource {
	return networkingv1.SchemeGroupVersion.WithResource(resource).GroupResource()
}

// review is a resource that answers questions and stores nothing.
type review struct {
	version schema.GroupVersion
	path    string
	storage rest.Storage
}

func reviewResources(d Dependencies) (out []review) {
	add := func(version schema.GroupVersion, storages map[string]rest.Storage) {
		for _, path := range slices.Sorted(maps.Keys(storages)) {
			out = append(out, review{version, path, storages[path]})
		}
	}
	add(authenticationv1.SchemeGroupVersion, reviews.Authentication(d.Tokens, d.Audiences))
	add(authorizationv1.SchemeGroupVersion, reviews.Authorization(d.Authorizer, d.Rules))
	return out
}
