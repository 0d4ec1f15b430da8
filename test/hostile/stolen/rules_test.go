package stolen

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// what is something that can be asked for, and the verbs that node 1 has on it. Nobody
// else here has any, but for what everybody stands for.
type what struct {
	path  string
	node1 string
	// everybody lists the verbs that each of the thieves has, boot those of a join token.
	everybody, boot string
}

// rules is what a stolen credential may do, all verbs that are not named being refused.
var rules = []what{
	// What the node's pods use can be read, and nothing else of these kinds; what is
	// written is written by others.
	{path: "/api/v1/namespaces/yard-a/secrets/sec-vol", node1: "get"},
	{path: "/api/v1/namespaces/yard-a/secrets/sec-other"},
	{path: "/api/v1/namespaces/yard-a/secrets/sec-unused"},
	{path: "/api/v1/namespaces/yard-b/secrets/sec-vol"},
	{path: "/api/v1/namespaces/kube-system/secrets/bootstrap-token-yardaa"},
	{path: "/api/v1/namespaces/yard-a/secrets"},
	{path: "/api/v1/secrets"},
	{path: "/api/v1/namespaces/yard-a/configmaps/cm-vol", node1: "get"},
	{path: "/api/v1/namespaces/yard-a/configmaps/cm-other"},
	{path: "/api/v1/namespaces/yard-a/configmaps"},
	{path: "/api/v1/namespaces/yard-a/serviceaccounts/sa-own", node1: "get"},
	{path: "/api/v1/namespaces/yard-a/serviceaccounts/sa-other"},
	{path: "/api/v1/namespaces/yard-a/serviceaccounts"},
	// Its own pods are read, reported, evicted and removed.
	{path: "/api/v1/namespaces/yard-a/pods/own", node1: "get delete"},
	{path: "/api/v1/namespaces/yard-a/pods/own/status", node1: "update patch"},
	{path: "/api/v1/namespaces/yard-a/pods/other"},
	{path: "/api/v1/namespaces/yard-a/pods/other/status"},
	{path: "/api/v1/namespaces/yard-a/pods/unbound"},
	{path: "/api/v1/namespaces/yard-a/pods/unbound/status"},
	{path: "/api/v1/namespaces/yard-a/pods/mir-own", node1: "get delete"},
	{path: "/api/v1/namespaces/yard-a/pods/mir-other"},
	{path: "/api/v1/namespaces/yard-a/pods/own/exec"},
	{path: "/api/v1/namespaces/yard-a/pods/own/attach"},
	{path: "/api/v1/namespaces/yard-a/pods/own/portforward"},
	{path: "/api/v1/namespaces/yard-a/pods/own/log"},
	{path: "/api/v1/namespaces/yard-a/pods/own/proxy"},
	{path: "/api/v1/namespaces/yard-a/pods/own/binding"},
	{path: "/api/v1/namespaces/yard-a/pods/own/ephemeralcontainers"},
	{path: "/api/v1/namespaces/yard-a/pods"},
	{path: "/api/v1/pods"},
	// Its own node, its lease, its drivers.
	{path: "/api/v1/nodes"},
	{path: "/apis/network.everynode.io/v1/nodes", node1: "list watch"}, // its network makes routes
	{path: "/api/v1/nodes/yard-1", node1: "get update patch"},
	{path: "/api/v1/nodes/yard-1/status", node1: "update patch"},
	{path: "/api/v1/nodes/yard-1/proxy"},
	{path: "/api/v1/nodes/yard-2"},
	{path: "/api/v1/nodes/yard-2/status"},
	{path: "/api/v1/nodes/yard-2/proxy"},
	{path: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/yard-1", node1: "get update patch delete"},
	{path: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/yard-2"},
	{path: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"},
	{path: "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/yard-lease"},
	{path: "/apis/storage.k8s.io/v1/csinodes/yard-1", node1: "get update patch delete"},
	{path: "/apis/storage.k8s.io/v1/csinodes/yard-2"},
	{path: "/apis/storage.k8s.io/v1/csinodes"},
	{path: "/apis/storage.k8s.io/v1/csidrivers/yard.example.com", node1: "get"},
	// Devices. None of these claims is of a pod of the node, and the slice is not there.
	{path: "/apis/resource.k8s.io/v1/resourceslices"},
	{path: "/apis/resource.k8s.io/v1/resourceslices/yard-slice"},
	{path: "/apis/resource.k8s.io/v1/deviceclasses/yard-class"},
	{path: "/apis/resource.k8s.io/v1/namespaces/yard-a/resourceclaims"},
	{path: "/apis/resource.k8s.io/v1/namespaces/yard-a/resourceclaims/yard-claim"},
	{path: "/apis/resource.k8s.io/v1/namespaces/yard-a/resourceclaims/yard-claim/status"},
	{path: "/apis/resource.k8s.io/v1/namespaces/yard-a/resourceclaimtemplates/yard-template"},
	// How pods can be run.
	{path: "/apis/node.k8s.io/v1/runtimeclasses", node1: "list watch"},
	{path: "/apis/node.k8s.io/v1/runtimeclasses/yard-vm", node1: "get"},
	// What a service proxy and a name server need.
	{path: "/api/v1/services", node1: "list watch"},
	{path: "/api/v1/namespaces/yard-a/services/svc", node1: "get"},
	{path: "/api/v1/namespaces/yard-a/services/svc/proxy"},
	{path: "/api/v1/namespaces", node1: "list watch"},
	{path: "/api/v1/namespaces/yard-a"},
	{path: "/api/v1/namespaces/yard-a/endpoints/ep", node1: "get"},
	{path: "/api/v1/namespaces/yard-a/endpoints"},
	{path: "/apis/discovery.k8s.io/v1/endpointslices", node1: "list watch"},
	{path: "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns"},
	// Certificates are asked for; others give them.
	{path: "/apis/certificates.k8s.io/v1/certificatesigningrequests", node1: "list watch create", boot: "list watch create"},
	{path: "/apis/certificates.k8s.io/v1/certificatesigningrequests/yard-id-node1", node1: "get", boot: "get"},
	{path: "/apis/certificates.k8s.io/v1/certificatesigningrequests/yard-id-node1/approval"},
	{path: "/apis/certificates.k8s.io/v1/certificatesigningrequests/yard-id-node1/status"},
	// Workloads, rights and rules are nobody's here.
	{path: "/apis/apps/v1/daemonsets"},
	{path: "/apis/apps/v1/namespaces/yard-a/daemonsets/ds"},
	{path: "/apis/apps/v1/namespaces/yard-a/daemonsets/ds/status"},
	{path: "/apis/apps/v1/namespaces/yard-a/deployments/x/scale"},
	{path: "/apis/apps/v1/namespaces/yard-a/controllerrevisions"},
	{path: "/apis/policy/v1/namespaces/yard-a/poddisruptionbudgets/guard"},
	{path: "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin"},
	{path: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"},
	{path: "/apis/rbac.authorization.k8s.io/v1/namespaces/yard-a/rolebindings"},
	{path: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"},
	{path: "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/x"},
	{path: "/apis/scheduling.k8s.io/v1/priorityclasses"},
	{path: "/apis/networking.k8s.io/v1/ingresses"},
	{path: "/apis/networking.k8s.io/v1/ingressclasses"},
	{path: "/apis/networking.k8s.io/v1/namespaces/yard-a/networkpolicies/x"},
	{path: "/api/v1/podtemplates"},
	{path: "/api/v1/replicationcontrollers"},
	{path: "/api/v1/namespaces/yard-a/replicationcontrollers/x/scale"},
	{path: "/api/v1/namespaces/yard-a/replicationcontrollers/x/status"},
	{path: "/api/v1/namespaces/yard-a/limitranges"},
	{path: "/api/v1/namespaces/yard-a/limitranges/x"},
	{path: "/api/v1/namespaces/yard-a/resourcequotas"},
	{path: "/api/v1/namespaces/yard-a/resourcequotas/x"},
	{path: "/api/v1/namespaces/yard-a/resourcequotas/x/status"},
	{path: "/api/v1/namespaces/yard-a/podtemplates/x"},
	{path: "/apis/metrics.k8s.io/v1beta1/nodes"},
	{path: "/apis/metrics.k8s.io/v1beta1/namespaces/yard-a/pods/own"},
}

// has reports whether somebody has a verb on it.
func (w what) has(who, verb string) bool {
	verbs := w.everybody
	switch who {
	case "node1":
		verbs += " " + w.node1
	case "boot":
		verbs += " " + w.boot
	}
	for v := range strings.FieldsSeq(verbs) {
		if v == verb {
			return true
		}
	}
	return false
}

// verbsOf are the requests that can be made about a path, by the verb that they need.
func (y *yard) verbsOf(t *testing.T, path string) map[string]request {
	at := targetOf(path)
	body := asBytes(t, object{"apiVersion": at.version, "kind": kinds[at.resource], "metadata": object{"name": at.name}})
	if at.name == "" {
		return map[string]request{
			"list": {method: http.MethodGet, path: path}, "watch": {method: http.MethodGet, path: path + "?watch=1&timeoutSeconds=1"},
			"create": {method: http.MethodPost, path: path, header: contentType(asJSON), body: body}, "deletecollection": {method: http.MethodDelete, path: path},
		}
	}
	return map[string]request{
		"get": {method: http.MethodGet, path: path}, "update": {method: http.MethodPut, path: path, header: contentType(asJSON), body: asBytes(t, y.changed(t, at, ""))},
		"patch":  {method: http.MethodPatch, path: path, header: contentType(asMerge), body: []byte(`{"metadata":{"annotations":{"yard":"x"}}}`)},
		"delete": {method: http.MethodDelete, path: path}, "create": {method: http.MethodPost, path: path, header: contentType(asJSON), body: body},
	}
}

// Every verb on every kind of thing, own, another's and unrelated.
func TestWhoMayWhat(t *testing.T) {
	y := newYard(t)
	var mu sync.Mutex
	var wrong []string
	var calls []func()
	for _, w := range rules {
		for verb, r := range y.verbsOf(t, w.path) {
			at := targetOf(w.path)
			if verb == "create" && at.name != "" && at.sub == "" {
				continue // a POST to a name is no verb of its own
			}
			for _, who := range []string{"node1", "ghost", "sa", "boot", "anon", "nogroup", "noname", "emptyname"} {
				calls = append(calls, func() {
					code, body, err := y.send(t.Context(), y.thieves[who], dry(r))
					may := w.has(who, verb)
					if who == "ghost" {
						may = ghostMay(w, verb, at)
					}
					refused := code == http.StatusForbidden || code == http.StatusMethodNotAllowed
					if err == nil && may != refused {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					wrong = append(wrong, fmt.Sprintf("%s %s %s: %d %v, may %v: %.300s", who, verb, w.path, code, err, may, messageOf(body)))
				})
			}
		}
	}
	together(calls)
	for _, text := range wrong {
		t.Error(text)
	}
	if len(calls) < 2000 {
		t.Errorf("only %d requests were made", len(calls))
	}
}

// ghostMay is what a node may that has no object and no pods: what needs no relation.
func ghostMay(w what, verb string, at target) bool {
	switch at.resource {
	case "services", "endpoints", "namespaces", "endpointslices", "csidrivers", "runtimeclasses", "certificatesigningrequests":
		return w.has("node1", verb)
	case "nodes":
		return at.name == "" && w.has("node1", verb)
	}
	return false
}
