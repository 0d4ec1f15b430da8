package stolen

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
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
	post("to be a server", "/everynode/v1/members", object{"name": "thief", "peer": "https://127.0.0.1:2380"})
	out["who the servers are"] = request{method: http.MethodGet, path: "/everynode/v1/members"}
	out["a server out"] = request{method: http.MethodDelete, path: "/everynode/v1/members/first"}
	out["this server out"] = request{method: http.MethodPost, path: "/everynode/v1/members/leave"}
	out["keys at rest"] = request{method: http.MethodGet, path: "/everynode/v1/encryption"}
	out["stored objects anew"] = request{method: http.MethodPost, path: "/everynode/v1/encryption/rewrite"}
	return out
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
	if len(all) < 90 {
		t.Errorf("only %d ways are tried", len(all))
	}
	y.refuses(t, daemon, all)
	y.refuses(t, y.thieves["anon"], all)
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
