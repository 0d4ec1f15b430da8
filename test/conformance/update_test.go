package conformance

import (
	"fmt"
	"strings"
	"testing"
)

// change is an object that is created, and a merge patch of it.
type change struct {
	resource string // its path below the API, without the name
	object   string // members beside apiVersion, kind and metadata
	patch    string
	says     string // the refusal, without the kind and name; empty when it is accepted
}

// kinds are the API version and kind behind the paths that are used.
var kinds = map[string][2]string{
	"/api/v1/namespaces/default/pods": {"v1", "Pod"}, "/api/v1/namespaces/default/services": {"v1", "Service"},
	"/api/v1/nodes": {"v1", "Node"}, "/api/v1/namespaces": {"v1", "Namespace"},
	"/api/v1/namespaces/default/configmaps": {"v1", "ConfigMap"}, "/api/v1/namespaces/default/secrets": {"v1", "Secret"},
	"/api/v1/namespaces/default/serviceaccounts":                            {"v1", "ServiceAccount"},
	"/apis/apps/v1/namespaces/default/deployments":                          {"apps/v1", "Deployment"},
	"/apis/apps/v1/namespaces/default/replicasets":                          {"apps/v1", "ReplicaSet"},
	"/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings":    {"rbac.authorization.k8s.io/v1", "RoleBinding"},
	"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings":                {"rbac.authorization.k8s.io/v1", "ClusterRoleBinding"},
	"/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles":           {"rbac.authorization.k8s.io/v1", "Role"},
	"/apis/scheduling.k8s.io/v1/priorityclasses":                            {"scheduling.k8s.io/v1", "PriorityClass"},
	"/apis/policy/v1/namespaces/default/poddisruptionbudgets":               {"policy/v1", "PodDisruptionBudget"},
	"/apis/coordination.k8s.io/v1/namespaces/default/leases":                {"coordination.k8s.io/v1", "Lease"},
	"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices":           {"discovery.k8s.io/v1", "EndpointSlice"},
	"/apis/apps/v1/namespaces/default/controllerrevisions":                  {"apps/v1", "ControllerRevision"},
	"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": {"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"},
}

const (
	pods           = "/api/v1/namespaces/default/pods"
	services       = "/api/v1/namespaces/default/services"
	nodes          = "/api/v1/nodes"
	configMaps     = "/api/v1/namespaces/default/configmaps"
	secrets        = "/api/v1/namespaces/default/secrets"
	deployments    = "/apis/apps/v1/namespaces/default/deployments"
	replicaSets    = "/apis/apps/v1/namespaces/default/replicasets"
	rbac           = "/apis/rbac.authorization.k8s.io/v1"
	priorities     = "/apis/scheduling.k8s.io/v1/priorityclasses"
	budgets        = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	leases         = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	endpointSlices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	sleepingPod    = `"spec":{"schedulerName":"nobody","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i:1"}],"tolerations":[{"key":"k","operator":"Exists"}]}`
	gatedPod       = `"spec":{"automountServiceAccountToken":false,"schedulingGates":[{"name":"g"}],"nodeSelector":{"a":"1"},"containers":[{"name":"c","image":"i:1"}]}`
	template       = `"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`
	workload       = `"spec":{"replicas":0,"selector":{"matchLabels":{"app":"a"}},` + template + `}`
	frozenConfig   = `"immutable":true,"data":{"a":"b"},"binaryData":{"c":"ZA=="}`
	frozen         = "Forbidden: field is immutable when `immutable` is set"
	changeable     = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
		"`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)

// changes are what may be changed and what may not, kind by kind.
var changes = map[string]change{
	"Pod: labels and annotations":             {pods, sleepingPod, `{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}`, ""},
	"Pod: image":                              {pods, sleepingPod, `{"spec":{"containers":[{"name":"c","image":"i:2"}]}}`, ""},
	"Pod: deadline":                           {pods, sleepingPod, `{"spec":{"activeDeadlineSeconds":60}}`, ""},
	"Pod: one more toleration":                {pods, sleepingPod, `{"spec":{"tolerations":[{"key":"k","operator":"Exists"},{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":1},{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]}}`, ""},
	"Pod: one toleration less":                {pods, sleepingPod, `{"spec":{"tolerations":null}}`, "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"},
	"Pod: command":                            {pods, sleepingPod, `{"spec":{"containers":[{"name":"c","image":"i:1","command":["x"]}]}}`, changeable},
	"Pod: node":                               {pods, sleepingPod, `{"spec":{"nodeName":"n"}}`, changeable},
	"Pod: node selector":                      {pods, sleepingPod, `{"spec":{"nodeSelector":{"a":"b"}}}`, changeable},
	"Pod: one more container":                 {pods, sleepingPod, `{"spec":{"containers":[{"name":"c","image":"i:1"},{"name":"d","image":"i:1"}]}}`, "spec.containers: Forbidden: pod updates may not add or remove containers"},
	"Pod: resources":                          {pods, sleepingPod, `{"spec":{"containers":[{"name":"c","image":"i:1","resources":{"requests":{"cpu":"1"}}}]}}`, changeable},
	"Pod: one more gate":                      {pods, gatedPod, `{"spec":{"schedulingGates":[{"name":"g"},{"name":"h"}]}}`, "spec.schedulingGates[1]: Forbidden: only deletion is allowed, but found new scheduling gate 'h'"},
	"Pod: no gate":                            {pods, gatedPod, `{"spec":{"schedulingGates":null}}`, ""},
	"Pod: node selector of a gated pod, more": {pods, gatedPod, `{"spec":{"nodeSelector":{"b":"2"}}}`, ""},
	"Pod: node selector of a gated pod, other": {pods, gatedPod, `{"spec":{"nodeSelector":{"a":"2"}}}`,
		`spec.nodeSelector: Invalid value: {"a":"2"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)`},

	"Service: ports and selector":   {services, `"spec":{"ports":[{"port":80}]}`, `{"spec":{"ports":[{"port":81}],"selector":{"a":"b"}}}`, ""},
	"Service: address":              {services, `"spec":{"ports":[{"port":80}]}`, `{"spec":{"clusterIP":"10.96.0.77","clusterIPs":["10.96.0.77"]}}`, `spec.clusterIPs[0]: Invalid value: ["10.96.0.77"]: may not change once set`},
	"Service: headless":             {services, `"spec":{"ports":[{"port":80}]}`, `{"spec":{"clusterIP":"None","clusterIPs":["None"]}}`, `spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set`},
	"Service: family":               {services, `"spec":{"ports":[{"port":80}]}`, `{"spec":{"ipFamilies":["IPv6"]}}`, `spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`},
	"Service: type":                 {services, `"spec":{"ports":[{"port":80}]}`, `{"spec":{"type":"NodePort"}}`, ""},
	"Service: away from an address": {services, `"spec":{"ports":[{"port":80}]}`, `{"spec":{"type":"ExternalName","externalName":"example.com"}}`, ""},
	"Service: load balancer class": {services, `"spec":{"type":"LoadBalancer","loadBalancerClass":"a.com/b","ports":[{"port":80}]}`, `{"spec":{"loadBalancerClass":"a.com/c"}}`,
		`spec.loadBalancerClass: Invalid value: "a.com/c": may not change once set`},

	"Node: labels, taints, cordon": {nodes, `"spec":{}`, `{"metadata":{"labels":{"a":"b"}},"spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoExecute"}]}}`, ""},
	"Node: provider, first":        {nodes, `"spec":{}`, `{"spec":{"providerID":"a://b"}}`, ""},
	"Node: provider":               {nodes, `"spec":{"providerID":"a://b"}`, `{"spec":{"providerID":"a://c"}}`, `spec.providerID: Forbidden: node updates may not change providerID except from "" to valid`},
	"Node: pod networks":           {nodes, `"spec":{"podCIDR":"10.9.0.0/24","podCIDRs":["10.9.0.0/24"]}`, `{"spec":{"podCIDR":"10.9.1.0/24","podCIDRs":["10.9.1.0/24"]}}`, `spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid`},
	"Node: external ID":            {nodes, `"spec":{}`, `{"spec":{"externalID":"x"}}`, `spec.externalID: Forbidden: may not be updated`},
	"Node: bad taint":              {nodes, `"spec":{}`, `{"spec":{"taints":[{"key":"k","effect":"Never"}]}}`, `metadata.taints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`},

	"Namespace: labels":     {"/api/v1/namespaces", `"spec":{}`, `{"metadata":{"labels":{"a":"b"}}}`, ""},
	"Namespace: finalizers": {"/api/v1/namespaces", `"spec":{}`, `{"spec":{"finalizers":null}}`, ""},

	"ConfigMap: data":               {configMaps, `"data":{"a":"b"}`, `{"data":{"a":"c"}}`, ""},
	"ConfigMap: becomes immutable":  {configMaps, `"data":{"a":"b"}`, `{"data":{"a":"c"},"immutable":true}`, ""},
	"immutable ConfigMap: labels":   {configMaps, frozenConfig, `{"metadata":{"labels":{"a":"b"}}}`, ""},
	"immutable ConfigMap: data":     {configMaps, frozenConfig, `{"data":{"a":"c"}}`, "data: " + frozen},
	"immutable ConfigMap: binary":   {configMaps, frozenConfig, `{"binaryData":null}`, "binaryData: " + frozen},
	"immutable ConfigMap: mutable":  {configMaps, frozenConfig, `{"immutable":false,"data":{"a":"c"}}`, "[immutable: " + frozen + ", data: " + frozen + "]"},
	"immutable ConfigMap: unmarked": {configMaps, frozenConfig, `{"immutable":null}`, "immutable: " + frozen},

	"Secret: data":              {secrets, `"stringData":{"a":"b"}`, `{"stringData":{"a":"c"}}`, ""},
	"Secret: type":              {secrets, `"stringData":{"a":"b"}`, `{"type":"other"}`, `type: Invalid value: "other": field is immutable`},
	"Secret: type left out":     {secrets, `"type":"a.com/b","stringData":{"a":"b"}`, `{"type":null}`, `type: Invalid value: "Opaque": field is immutable`},
	"immutable Secret: data":    {secrets, `"immutable":true,"stringData":{"a":"b"}`, `{"stringData":{"a":"c"}}`, "data: " + frozen},
	"immutable Secret: mutable": {secrets, `"immutable":true,"stringData":{"a":"b"}`, `{"immutable":false}`, "immutable: " + frozen},

	"ServiceAccount: secrets": {"/api/v1/namespaces/default/serviceaccounts", `"secrets":[{"name":"a"}]`, `{"secrets":[{"name":"b"}],"automountServiceAccountToken":false}`, ""},

	"Deployment: template and replicas": {deployments, workload, `{"spec":{"paused":true,"minReadySeconds":1}}`, ""},
	"Deployment: selector": {deployments, workload, `{"spec":{"selector":{"matchLabels":{"app":"b"}},"template":{"metadata":{"labels":{"app":"b"}}}}}`,
		`spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable`},
	"ReplicaSet: replicas": {replicaSets, workload, `{"spec":{"minReadySeconds":1}}`, ""},
	"ReplicaSet: selector": {replicaSets, workload, `{"spec":{"selector":{"matchLabels":{"app":"b"}}}}`,
		"[spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`, spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"b\"}}: field is immutable]"},

	"RoleBinding: subjects": {rbac + "/namespaces/default/rolebindings", `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}`,
		`{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"u"}]}`, ""},
	"RoleBinding: role": {rbac + "/namespaces/default/rolebindings", `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}`,
		`{"roleRef":{"name":"edit"}}`, `roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"edit"}: cannot change roleRef`},
	"ClusterRoleBinding: role": {rbac + "/clusterrolebindings", `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}`,
		`{"roleRef":{"name":"edit"}}`, `roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"edit"}: cannot change roleRef`},
	"Role: rules": {rbac + "/namespaces/default/roles", `"rules":[]`, `{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`, ""},

	"PriorityClass: description": {priorities, `"value":5`, `{"description":"d"}`, ""},
	"PriorityClass: value":       {priorities, `"value":5`, `{"value":6}`, "value: Forbidden: may not be changed in an update."},
	"PriorityClass: preemption":  {priorities, `"value":5`, `{"preemptionPolicy":"Never"}`, `preemptionPolicy: Invalid value: "Never": field is immutable`},

	"PodDisruptionBudget: selector and numbers": {budgets, `"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}`, `{"spec":{"minAvailable":null,"maxUnavailable":"50%","selector":{"matchLabels":{"a":"c"}}}}`, ""},
	"Lease: holder":               {leases, `"spec":{"holderIdentity":"a"}`, `{"spec":{"holderIdentity":"b","leaseTransitions":1}}`, ""},
	"Lease: duration":             {leases, `"spec":{"leaseDurationSeconds":10}`, `{"spec":{"leaseDurationSeconds":0}}`, "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"},
	"EndpointSlice: endpoints":    {endpointSlices, `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]`, `{"endpoints":[{"addresses":["10.0.0.2"]}]}`, ""},
	"EndpointSlice: address type": {endpointSlices, `"addressType":"IPv4","endpoints":[]`, `{"addressType":"IPv6"}`, `addressType: Invalid value: "IPv6": field is immutable`},
	"ControllerRevision: number":  {revisions, `"data":{"a":1},"revision":1`, `{"revision":9}`, ""},
	"any kind: owners that both control": {configMaps, `"data":{}`, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a","uid":"1","controller":true},{"apiVersion":"v1","kind":"B","name":"b","uid":"2","controller":true}]}}`,
		`metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"A","name":"a","uid":"1","controller":true},{"apiVersion":"v1","kind":"B","name":"b","uid":"2","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for A/a and B/b`},
}

func TestUpdates(t *testing.T) {
	s := start(t)
	n := 0
	for title, c := range changes {
		n++
		name := fmt.Sprintf("updated-%d", n)
		t.Run(title, func(t *testing.T) {
			kind, ok := kinds[c.resource]
			if !ok {
				t.Fatalf("unknown path %s", c.resource)
			}
			object := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},%s}`, kind[0], kind[1], name, c.object)
			s.send(t, "POST", c.resource, asJSON, object).want(t, 201)
			got := s.send(t, "PATCH", c.resource+"/"+name, mergePatch, c.patch)
			if c.says == "" {
				got.want(t, 200)
				return
			}
			group, _, found := strings.Cut(kind[0], "/")
			full := kind[1]
			if found {
				full += "." + group
			}
			want := fmt.Sprintf("%s %q is invalid: %s", full, name, c.says)
			if text := fmt.Sprint(got.body["message"]); got.code != 422 || !strings.HasPrefix(text, want) {
				t.Errorf("got %d: %s\nwant 422: %s", got.code, text, want)
			}
		})
	}
}

// A PUT creates an object of these kinds that is not there, and of no others.
func TestPutCreates(t *testing.T) {
	s := start(t)
	for path, c := range map[string]struct {
		object string
		code   int
	}{
		services:                           {`"spec":{"ports":[{"port":80}]}`, 201},
		leases:                             {`"spec":{}`, 201},
		rbac + "/namespaces/default/roles": {`"rules":[]`, 201},
		rbac + "/clusterrolebindings":      {`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}`, 201},
		pods:                               {sleepingPod, 404},
		nodes:                              {`"spec":{}`, 404},
		configMaps:                         {`"data":{}`, 404},
		secrets:                            {`"data":{}`, 404},
		deployments:                        {workload, 404},
		priorities:                         {`"value":1`, 404},
		endpointSlices:                     {`"addressType":"IPv4","endpoints":[]`, 404},
		revisions:                          {`"data":{},"revision":1`, 404},
	} {
		kind := kinds[path]
		object := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"put"},%s}`, kind[0], kind[1], c.object)
		if got := s.send(t, "PUT", path+"/put", asJSON, object); got.code != c.code {
			t.Errorf("%s: got %d, want %d: %s", kind[1], got.code, c.code, got.raw)
		}
	}
}
