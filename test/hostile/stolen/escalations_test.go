package stolen

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/everynode/everynode/internal/storage/backup"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/storage/members"
)

// escalations are the ways by which somebody with few rights would get more.
func (y *yard) escalations(t *testing.T) map[string]request {
	t.Helper()
	out := map[string]request{}
	post := func(what, path string, body object) {
		out[what] = dry(request{method: http.MethodPost, path: path, header: contentType(asJSON), body: asBytes(t, body)})
	}
	patch := func(what, path string, body object) {
		out[what] = dry(request{method: http.MethodPatch, path: path, header: contentType(asMerge), body: asBytes(t, body)})
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1"

	// To be somebody else.
	for name, header := range map[string]http.Header{
		"administrators":      {"Impersonate-User": {"x"}, "Impersonate-Group": {"system:masters"}},
		"a node":              {"Impersonate-User": {"system:node:yard-1"}, "Impersonate-Group": {"system:nodes"}},
		"a control loop":      {"Impersonate-User": {"system:serviceaccount:kube-system:daemon-set-controller"}},
		"an account":          {"Impersonate-User": {"system:serviceaccount:yard-a:sa-other"}},
		"nobody":              {"Impersonate-User": {"system:anonymous"}},
		"the scheduler":       {"Impersonate-User": {"system:kube-scheduler"}},
		"who holds a UID":     {"Impersonate-User": {"x"}, "Impersonate-Uid": {"1"}},
		"who has more scopes": {"Impersonate-User": {"x"}, "Impersonate-Extra-Scopes": {"all"}},
	} {
		out["be "+name] = request{method: http.MethodGet, path: "/api/v1/namespaces/yard-a/pods", header: header}
	}
	// Tokens.
	for _, account := range []string{"yard-a/sa-own", "yard-a/sa-other", "yard-a/default", "yard-b/default", "kube-system/daemon-set-controller", "kube-system/default"} {
		namespace, name, _ := strings.Cut(account, "/")
		post("a token of "+account, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+name+"/token", object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": object{}})
	}
	post("a Secret that gets a token", "/api/v1/namespaces/yard-a/secrets", object{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
		"metadata": object{"name": "t", "annotations": object{"kubernetes.io/service-account.name": "sa-other"}}})
	post("a join token", "/api/v1/namespaces/kube-system/secrets", object{"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token", "metadata": object{"name": "bootstrap-token-thiefs"}})
	// Roles.
	subject := []object{{"kind": "ServiceAccount", "namespace": "yard-a", "name": "sa-own"}}
	admin := object{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": "cluster-admin"}
	post("the administrator's role", rbac+"/clusterrolebindings", object{"metadata": object{"name": "t"}, "roleRef": admin, "subjects": subject})
	post("the administrator's role here", rbac+"/namespaces/yard-a/rolebindings", object{"metadata": object{"name": "t"}, "roleRef": admin, "subjects": subject})
	all := []object{{"apiGroups": []string{"*"}, "resources": []string{"*"}, "verbs": []string{"*"}}}
	post("a role of all", rbac+"/clusterroles", object{"metadata": object{"name": "t"}, "rules": all})
	patch("a role that is aggregated", rbac+"/clusterroles/view", object{"metadata": object{"labels": object{"rbac.authorization.k8s.io/aggregate-to-view": "true"}}, "rules": all})
	patch("its own role", rbac+"/namespaces/yard-a/roles/daemon", object{"rules": all})
	patch("its own binding", rbac+"/namespaces/yard-a/rolebindings/daemon", object{"subjects": subject})
	// Certificates.
	for _, signer := range []string{"kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"} {
		post("a certificate of "+signer, "/apis/certificates.k8s.io/v1/certificatesigningrequests", object{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
			"metadata": object{"name": "t"}, "spec": object{"signerName": signer, "request": "eA==", "usages": []string{"client auth"}}})
	}
	patch("an approval", "/apis/certificates.k8s.io/v1/certificatesigningrequests/yard-id-node1/approval", object{"status": object{"conditions": []object{{"type": "Approved", "status": "True"}}}})
	// Pods, and what makes some.
	for what, spec := range map[string]object{
		"privileged":    {"containers": []object{{"name": "c", "image": "x", "securityContext": object{"privileged": true}}}},
		"on a node":     {"nodeName": "yard-1", "hostNetwork": true, "hostPID": true, "containers": []object{{"name": "c", "image": "x"}}},
		"of another":    {"serviceAccountName": "sa-other", "containers": []object{{"name": "c", "image": "x"}}},
		"with files":    {"volumes": []object{{"name": "v", "hostPath": object{"path": "/"}}}, "containers": []object{{"name": "c", "image": "x"}}},
		"with a Secret": {"containers": []object{{"name": "c", "image": "x", "envFrom": []object{{"secretRef": object{"name": "sec-other"}}}}}},
	} {
		pod := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "t"}, "spec": spec}
		for _, namespace := range []string{"yard-a", "yard-b", "kube-system"} {
			post("a pod "+what+" in "+namespace, "/api/v1/namespaces/"+namespace+"/pods", pod)
			template := object{"metadata": object{"labels": object{"a": "b"}}, "spec": spec}
			post("a DaemonSet of pods "+what+" in "+namespace, "/apis/apps/v1/namespaces/"+namespace+"/daemonsets", object{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": object{"name": "t"},
				"spec": object{"selector": object{"matchLabels": object{"a": "b"}}, "template": template}})
		}
	}
	patch("another image in its own pod", "/api/v1/namespaces/yard-a/pods/own", object{"spec": object{"containers": []object{{"name": "c", "image": "thief"}}}})
	patch("another DaemonSet", "/apis/apps/v1/namespaces/yard-a/daemonsets/ds", object{"spec": object{"template": object{"spec": object{"serviceAccountName": "sa-other"}}}})
	post("a binding", "/api/v1/namespaces/yard-a/pods/unbound/binding", object{"target": object{"kind": "Node", "name": "yard-1"}})
	post("an eviction", "/api/v1/namespaces/yard-a/pods/other/eviction", object{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"name": "other"}})
	for _, sub := range []string{"exec?command=id", "attach", "portforward", "proxy", "proxy/x"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, name := range []string{"own", "other"} {
				out[method+" "+sub+" of "+name] = request{method: method, path: "/api/v1/namespaces/yard-a/pods/" + name + "/" + sub}
			}
		}
	}
	// The way through nodes and Services.
	for _, path := range []string{"/api/v1/nodes/yard-1/proxy/pods", "/api/v1/nodes/yard-1/proxy/exec/yard-a/own/c", "/api/v1/nodes/yard-1:10250/proxy/", "/api/v1/namespaces/yard-a/services/svc/proxy/",
		"/api/v1/namespaces/default/services/https:kubernetes:443/proxy/"} {
		out["GET "+path] = request{method: http.MethodGet, path: path}
		out["POST "+path] = request{method: http.MethodPost, path: path}
	}
	// Rules of the whole cluster.
	for _, kind := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		post("a webhook of "+kind, "/apis/admissionregistration.k8s.io/v1/"+kind, object{"metadata": object{"name": "t"}})
	}
	patch("no limits for pods", "/api/v1/namespaces/yard-r", object{"metadata": object{"labels": object{"pod-security.kubernetes.io/enforce": "privileged"}}})
	patch("a taint away", "/api/v1/nodes/yard-1", object{"spec": object{"taints": []object{}}})
	post("a priority above all", "/apis/scheduling.k8s.io/v1/priorityclasses", object{"metadata": object{"name": "t"}, "value": 1000000000})
	post("a way past the queues", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", object{"metadata": object{"name": "t"}})
	patch("the address of the API", "/api/v1/namespaces/default/endpoints/kubernetes", object{"subsets": []object{}})
	post("rights of others", "/apis/authorization.k8s.io/v1/subjectaccessreviews", object{"spec": object{"user": "x", "nonResourceAttributes": object{"path": "/", "verb": "get"}}})
	post("tokens of others", "/apis/authentication.k8s.io/v1/tokenreviews", object{"spec": object{"token": "x"}})
	y.newer(t, out, post, patch)
	return out
}

// newer are the ways through what Everynode has of its own, through what makes pods in
// other ways than a DaemonSet, and through what is added to the API or to nodes.
func (y *yard) newer(t *testing.T, out map[string]request, post, patch func(what, path string, body object)) {
	t.Helper()
	// The servers, their keys and all that they hold.
	post("to be a server", members.Path, object{"name": "thief", "peer": "https://127.0.0.1:2380"})
	out["who the servers are"] = request{method: http.MethodGet, path: members.Path}
	out["a server out"] = request{method: http.MethodDelete, path: members.Path + "/first"}
	out["this server out"] = request{method: http.MethodPost, path: members.LeavePath}
	out["a server out, by name"] = request{method: http.MethodPost, path: members.LeavePath + "?name=first"}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead, http.MethodPut} {
		out["a backup by "+method] = request{method: method, path: backup.Path}
		out["keys at rest by "+method] = request{method: method, path: encryption.Path}
		out["stored objects again by "+method] = request{method: method, path: encryption.RewritePath}
	}
	out["a backup, around the path"] = request{method: http.MethodPost, path: "/everynode/v1/../v1/backup"}
	out["a backup, with two slashes"] = request{method: http.MethodPost, path: "//everynode/v1/backup"}
	out["a backup, below the path"] = request{method: http.MethodPost, path: backup.Path + "/x"}
	// Rollouts: to say that a step is over, to approve, to take the policy away.
	const own = "/apis/everynode.io/v1alpha1/namespaces/yard-a"
	patch("an approval", own+"/daemonsetrollouts/ds", object{"metadata": object{"annotations": object{"everynode.io/approve": "all"}}, "spec": object{"approved": []string{"all"}}})
	patch("that a step is complete", own+"/daemonsetrollouts/ds/status", object{"status": object{"phase": "Complete"}})
	patch("no waves", own+"/rolloutpolicies/p", object{"spec": object{"waves": nil}})
	post("a policy", own+"/rolloutpolicies", object{"apiVersion": "everynode.io/v1alpha1", "kind": "RolloutPolicy", "metadata": object{"name": "t"}, "spec": object{}})
	out["no policy"] = dry(request{method: http.MethodDelete, path: own + "/rolloutpolicies/p"})
	// What is added to the API.
	post("a definition", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": "t.example.com"}})
	patch("a webhook that converts", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/t.example.com", object{"spec": object{"conversion": object{"strategy": "Webhook"}}})
	post("a server of others", "/apis/apiregistration.k8s.io/v1/apiservices", object{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": object{"name": "v1.example.com"}})
	patch("another server for its own kinds", "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps", object{"spec": object{"service": object{"namespace": "yard-a", "name": "svc"}}})
	patch("that a server answers", "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps/status", object{"status": object{"conditions": []object{}}})
	for _, kind := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		post("a rule of "+kind, "/apis/admissionregistration.k8s.io/v1/"+kind, object{"metadata": object{"name": "t"}})
		out["no rules of "+kind] = dry(request{method: http.MethodDelete, path: "/apis/admissionregistration.k8s.io/v1/" + kind})
	}
	// What makes pods.
	template := object{"metadata": object{"labels": object{"a": "b"}}, "spec": object{"serviceAccountName": "sa-other", "hostPID": true, "containers": []object{{"name": "c", "image": "x", "securityContext": object{"privileged": true}}}}}
	job := object{"template": template}
	for _, namespace := range []string{"yard-a", "kube-system"} {
		for kind, of := range map[string]struct {
			path string
			spec object
		}{
			"Deployment": {"/apis/apps/v1/namespaces/" + namespace + "/deployments", object{"template": template}}, "ReplicaSet": {"/apis/apps/v1/namespaces/" + namespace + "/replicasets", object{"template": template}},
			"StatefulSet": {"/apis/apps/v1/namespaces/" + namespace + "/statefulsets", object{"template": template}}, "Job": {"/apis/batch/v1/namespaces/" + namespace + "/jobs", job},
			"CronJob": {"/apis/batch/v1/namespaces/" + namespace + "/cronjobs", object{"schedule": "* * * * *", "jobTemplate": object{"spec": job}}}, "ReplicationController": {"/api/v1/namespaces/" + namespace + "/replicationcontrollers", object{"template": template}},
			"PodTemplate": {"/api/v1/namespaces/" + namespace + "/podtemplates", object{"template": template}}, "ControllerRevision": {"/apis/apps/v1/namespaces/" + namespace + "/controllerrevisions", object{}},
		} {
			post("a "+kind+" in "+namespace, of.path, object{"kind": kind, "metadata": object{"name": "t"}, "spec": of.spec})
			patch("another "+kind+" in "+namespace, of.path+"/x", object{"spec": of.spec})
		}
	}
	patch("more pods", "/apis/apps/v1/namespaces/yard-a/statefulsets/x/scale", object{"spec": object{"replicas": 1000}})
	patch("a Job that is done", "/apis/batch/v1/namespaces/yard-a/jobs/x/status", object{"status": object{"succeeded": 1}})
	patch("a debugger in its own pod", "/api/v1/namespaces/yard-a/pods/own/ephemeralcontainers", object{"spec": object{"ephemeralContainers": []object{{"name": "d", "image": "x"}}}})
	patch("more room for its own pod", "/api/v1/namespaces/yard-a/pods/own/resize", object{"spec": object{"containers": []object{{"name": "c", "resources": object{"limits": object{"cpu": "64"}}}}}})
	// Limits.
	post("a quota that stops all", "/api/v1/namespaces/yard-a/resourcequotas", object{"metadata": object{"name": "t"}, "spec": object{"hard": object{"pods": "0"}}})
	patch("a quota that is used up", "/api/v1/namespaces/yard-a/resourcequotas/x/status", object{"status": object{"used": object{"pods": "1000"}}})
	out["no quota"] = dry(request{method: http.MethodDelete, path: "/api/v1/namespaces/yard-a/resourcequotas"})
	out["no limits"] = dry(request{method: http.MethodDelete, path: "/api/v1/namespaces/yard-a/limitranges"})
	// Disks and drivers.
	for _, kind := range []string{"csidrivers", "csinodes", "storageclasses", "volumeattachments"} {
		post("one of "+kind, "/apis/storage.k8s.io/v1/"+kind, object{"metadata": object{"name": "t"}})
		out["none of "+kind] = dry(request{method: http.MethodDelete, path: "/apis/storage.k8s.io/v1/" + kind})
		out["all of "+kind] = request{method: http.MethodGet, path: "/apis/storage.k8s.io/v1/" + kind}
	}
	post("a folder of a node as a volume", "/api/v1/persistentvolumes", object{"metadata": object{"name": "t"}, "spec": object{"hostPath": object{"path": "/"}}})
	post("a claim", "/api/v1/namespaces/yard-a/persistentvolumeclaims", object{"metadata": object{"name": "t"}})
	post("how pods are run", "/apis/node.k8s.io/v1/runtimeclasses", object{"metadata": object{"name": "t"}, "handler": "runc"})
	// What the process tells of itself.
	for _, path := range []string{"/metrics", "/metrics/slis", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/flags/v", "/debug/api_priority_and_fairness/dump_requests", "/logs/", "/flagz", "/statusz", "/configz"} {
		out["GET "+path] = request{method: http.MethodGet, path: path}
	}
	out["more words in the log"] = request{method: http.MethodPut, path: "/debug/flags/v", body: []byte("10")}
}

// refuses makes sure that none of it is done for somebody.
func (y *yard) refuses(t *testing.T, who *thief, all map[string]request) {
	t.Helper()
	var mu sync.Mutex
	var calls []func()
	for what, r := range all {
		calls = append(calls, func() {
			code, body, err := y.send(t.Context(), who, r)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || code != http.StatusForbidden && code != http.StatusUnauthorized {
				t.Errorf("%s: %s %s: %d %v %.300s", what, r.method, r.path, code, err, messageOf(body))
			}
		})
	}
	together(calls)
}

// Whoever has a daemon's token gets no further with it: not as somebody else, not by
// tokens, roles, certificates, pods, nodes or rules.
func TestStolenTokenGetsNoFurther(t *testing.T) {
	y := newYard(t)
	y.giveRoles(t)
	daemon := y.withToken(y.boundToken(t))
	y.has(t, daemon, "/api/v1/namespaces/yard-a/pods")
	all := y.escalations(t)
	if len(all) < 180 {
		t.Errorf("only %d ways are tried", len(all))
	}
	y.refuses(t, daemon, all)
	y.refuses(t, y.thieves["anon"], all)
	// A join token asks for certificates of nodes, and does nothing else.
	delete(all, "a certificate of kubernetes.io/kube-apiserver-client-kubelet")
	delete(all, "a certificate of kubernetes.io/kubelet-serving")
	delete(all, "a certificate of kubernetes.io/kube-apiserver-client")
	y.refuses(t, y.thieves["boot"], all)
}

// Who may write roles and bindings gives nobody more than he has himself.
func TestWhoWritesRolesGivesWhatHeHas(t *testing.T) {
	y := newYard(t)
	const rbac = "/apis/rbac.authorization.k8s.io/v1"
	y.make(t, &rbacv1.ClusterRole{ObjectMeta: meta("", "yard-keeper"), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}, Verbs: []string{"get", "create", "update", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
	}})
	y.make(t, &rbacv1.ClusterRoleBinding{ObjectMeta: meta("", "yard-keeper"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "yard-keeper"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "yard-keeper"}}})
	keeper := y.withCertificate(t, "yard-keeper")
	y.has(t, keeper, rbac+"/clusterroles/view")
	rule := func(resource, verb string) []object {
		return []object{{"apiGroups": []string{""}, "resources": []string{resource}, "verbs": []string{verb}}}
	}
	subject := []object{{"kind": "User", "apiGroup": rbacv1.GroupName, "name": "yard-keeper"}}
	role := func(name string) object {
		return object{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": name}
	}
	for name, c := range map[string]struct {
		path string
		body object
		want int
	}{
		"a role of what he has":       {"/clusterroles", object{"metadata": object{"name": "t"}, "rules": rule("pods", "get")}, http.StatusCreated},
		"a role of another verb":      {"/clusterroles", object{"metadata": object{"name": "t"}, "rules": rule("pods", "list")}, http.StatusForbidden},
		"a role of another resource":  {"/clusterroles", object{"metadata": object{"name": "t"}, "rules": rule("secrets", "get")}, http.StatusForbidden},
		"a role of a subresource":     {"/namespaces/yard-a/roles", object{"metadata": object{"name": "t"}, "rules": rule("pods/exec", "create")}, http.StatusForbidden},
		"a role of all":               {"/namespaces/yard-a/roles", object{"metadata": object{"name": "t"}, "rules": rule("*", "*")}, http.StatusForbidden},
		"a role that collects others": {"/clusterroles", object{"metadata": object{"name": "t"}, "aggregationRule": object{"clusterRoleSelectors": []object{{}}}}, http.StatusForbidden},
		"a binding of what he has":    {"/clusterrolebindings", object{"metadata": object{"name": "t"}, "roleRef": role("yard-keeper"), "subjects": subject}, http.StatusCreated},
		"a binding of more":           {"/clusterrolebindings", object{"metadata": object{"name": "t"}, "roleRef": role("cluster-admin"), "subjects": subject}, http.StatusForbidden},
		"a binding of more, here":     {"/namespaces/yard-a/rolebindings", object{"metadata": object{"name": "t"}, "roleRef": role("system:aggregate-to-edit"), "subjects": subject}, http.StatusForbidden},
	} {
		code, body, err := y.send(t.Context(), keeper, dry(request{method: http.MethodPost, path: rbac + c.path, header: contentType(asJSON), body: asBytes(t, c.body)}))
		if err != nil || code != c.want {
			t.Errorf("%s: %d %v, want %d: %.300s", name, code, err, c.want, messageOf(body))
		}
	}
}
