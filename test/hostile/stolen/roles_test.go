package stolen

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// served is a resource or subresource of the server.
type served struct {
	version, group, name, kind string
	namespaced                 bool
}

// everything lists all resources and subresources that the server tells of.
func (y *yard) everything(t *testing.T) (out []served) {
	t.Helper()
	_, lists, err := y.admin.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lists {
		group, _, ok := strings.Cut(l.GroupVersion, "/")
		if !ok {
			group = ""
		}
		for _, r := range l.APIResources {
			out = append(out, served{version: l.GroupVersion, group: group, name: r.Name, kind: r.Kind, namespaced: r.Namespaced})
		}
	}
	if len(out) < 60 {
		t.Fatalf("the server tells of %d resources only", len(out))
	}
	return out
}

// path leads to the resource, in a namespace or in all, and to an object of it.
func (s served) path(namespace, name string) string {
	root := "/apis/" + s.version
	if s.group == "" {
		root = "/api/" + s.version
	}
	if namespace != "" {
		root += "/namespaces/" + namespace
	}
	resource, sub, _ := strings.Cut(s.name, "/")
	root += "/" + resource
	if name != "" {
		root += "/" + name
	}
	if sub != "" {
		root += "/" + sub
	}
	return root
}

// asked is one question of the play.
type asked struct {
	served
	verb, namespace, object string
	request                 request
}

// questions are every verb on every resource and subresource: in the namespace of the
// account, in another, and in all.
func (y *yard) questions(t *testing.T) (out []asked) {
	for _, s := range y.everything(t) {
		namespaces := []string{""}
		if s.namespaced {
			namespaces = []string{"yard-a", "yard-b", ""}
		}
		_, sub, _ := strings.Cut(s.name, "/")
		for _, namespace := range namespaces {
			body := asBytes(t, object{"apiVersion": strings.TrimPrefix(s.version, "/"), "kind": s.kind, "metadata": object{"name": "yard-x"}})
			add := func(verb, method, path, name string, header http.Header, body []byte) {
				out = append(out, asked{s, verb, namespace, name, dry(request{method: method, path: path, header: header, body: body})})
			}
			if sub == "" {
				all := s.path(namespace, "")
				add("list", http.MethodGet, all, "", nil, nil)
				add("watch", http.MethodGet, all+"?watch=1&timeoutSeconds=1", "", nil, nil)
				if namespace != "" || !s.namespaced {
					add("create", http.MethodPost, all, "", contentType(asJSON), body)
					add("deletecollection", http.MethodDelete, all+"?labelSelector=yard-nothing", "", nil, nil)
				}
			}
			if namespace == "" && s.namespaced {
				continue
			}
			one := s.path(namespace, "yard-x")
			add("get", http.MethodGet, one, "yard-x", nil, nil)
			add("update", http.MethodPut, one, "yard-x", contentType(asJSON), body)
			add("patch", http.MethodPatch, one, "yard-x", contentType(asMerge), []byte(`{}`))
			if sub == "" {
				add("delete", http.MethodDelete, one, "yard-x", nil, nil)
			} else {
				add("create", http.MethodPost, one, "yard-x", contentType(asJSON), body)
			}
		}
	}
	return out
}

// ask puts all questions, and compares who is refused with who may.
func (y *yard) ask(t *testing.T, who *thief, may func(asked) bool) {
	t.Helper()
	var mu sync.Mutex
	var wrong []string
	allowed := 0
	questions := y.questions(t)
	var calls []func()
	for _, q := range questions {
		calls = append(calls, func() {
			code, body, err := y.send(t.Context(), who, q.request)
			refused := code == http.StatusForbidden || code == http.StatusUnauthorized
			// What the server does not do for anybody gives nothing away.
			nobody := code == http.StatusMethodNotAllowed || code == http.StatusNotFound && strings.Contains(string(body), "could not find the requested resource")
			mu.Lock()
			defer mu.Unlock()
			if err != nil || refused == may(q) && !nobody {
				wrong = append(wrong, fmt.Sprintf("%s %s in %q: %d %v, may %v: %.200s", q.verb, q.name, q.namespace, code, err, may(q), messageOf(body)))
			} else if !refused && !nobody {
				allowed++
			}
		})
	}
	together(calls)
	slices.Sort(wrong)
	for _, text := range wrong {
		t.Error(text)
	}
	if len(questions) < 500 {
		t.Errorf("only %d questions were asked", len(questions))
	}
	t.Logf("%d questions, %d of them allowed", len(questions), allowed)
}

// basic is what everybody may who has a name: learn about himself.
func basic(q asked) bool {
	return q.verb == "create" && slices.Contains([]string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}, q.name)
}

// giveRoles lets a daemon's account do some things in its namespace, and read nodes.
func (y *yard) giveRoles(t *testing.T) {
	t.Helper()
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "yard-a", Name: "sa-own"}}
	role := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	y.make(t, &rbacv1.Role{ObjectMeta: meta("yard-a", "daemon"), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"yard-x"}, Verbs: []string{"get", "update"}},
	}})
	y.make(t, &coordinationv1.Lease{ObjectMeta: meta("yard-a", "yard-x")}) // To update what is not there would be to create it.
	y.make(t, &rbacv1.RoleBinding{ObjectMeta: meta("yard-a", "daemon"), RoleRef: role("Role", "daemon"), Subjects: subject})
	y.make(t, &rbacv1.ClusterRole{ObjectMeta: meta("", "daemon"), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}},
	}})
	y.make(t, &rbacv1.ClusterRoleBinding{ObjectMeta: meta("", "daemon"), RoleRef: role("ClusterRole", "daemon"), Subjects: subject})
}

// daemonMay is what these roles say, in other words.
func daemonMay(q asked) bool {
	switch q.name {
	case "pods":
		return q.group == "" && q.namespace == "yard-a" && slices.Contains([]string{"get", "list", "watch"}, q.verb)
	case "configmaps":
		return q.namespace == "yard-a" && (q.verb == "create" || q.verb == "update")
	case "leases":
		return q.namespace == "yard-a" && q.object == "yard-x" && (q.verb == "get" || q.verb == "update")
	case "nodes":
		return q.group == "" && q.verb == "list"
	}
	return basic(q)
}

// boundToken is a token of the account that ends with a pod.
func (y *yard) boundToken(t *testing.T, audiences ...string) string {
	t.Helper()
	r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "own", UID: types.UID(y.uids["Pod/own"])}}}
	got, err := y.admin.CoreV1().ServiceAccounts("yard-a").CreateToken(t.Context(), "sa-own", r, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Token
}

// has waits until the server knows of somebody's roles.
func (y *yard) has(t *testing.T, who *thief, path string) {
	t.Helper()
	eventually(t, "the roles are known", func() error {
		code, _, err := y.send(t.Context(), who, request{method: http.MethodGet, path: path})
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d", code)
		}
		return err
	})
}

// A daemon's token does what the roles of its account say, to the letter: every verb on
// every resource and subresource, in its namespace, in another and in all.
func TestStolenTokenDoesWhatItsRolesSay(t *testing.T) {
	y := newYard(t)
	y.giveRoles(t)
	daemon := y.withToken(y.boundToken(t))
	y.has(t, daemon, "/api/v1/namespaces/yard-a/pods")
	y.has(t, daemon, "/api/v1/nodes")
	y.ask(t, daemon, daemonMay)
}

// An account without roles may learn about itself, and nobody may nothing.
func TestNoRolesNoRights(t *testing.T) {
	y := newYard(t)
	y.ask(t, y.thieves["sa"], basic)
	y.ask(t, y.thieves["anon"], func(asked) bool { return false })
}

// nodeAsks is what a node may ask for besides what is its own, by resource. Of pods and
// nodes that are not there it learns just that.
var nodeAsks = map[string]string{
	"services": "get list watch", "namespaces": "list watch", "endpoints": "get", "endpointslices": "list watch", "runtimeclasses": "get list watch", "csidrivers": "get list watch",
	"certificatesigningrequests": "get list watch create", "events": "create update patch", "tokenreviews": "create", "subjectaccessreviews": "create", "localsubjectaccessreviews": "create",
	"pods": "delete", "pods/status": "update patch", "pods/eviction": "create", "nodes": "update patch", "nodes/status": "update patch", "nodes of network.everynode.io": "list watch",
}

// joinAsks is what a join token may ask for.
var joinAsks = map[string]string{"certificatesigningrequests": "get list watch create"}

// A node and a join token have nothing on what is neither theirs nor in a list, whatever
// kinds the server has: every verb on every resource and subresource.
func TestNodesAndJoinTokensDoNothingElse(t *testing.T) {
	y := newYard(t)
	for who, table := range map[string]map[string]string{"node1": nodeAsks, "ghost": nodeAsks, "boot": joinAsks, "nogroup": nil, "noname": nil} {
		t.Run(who, func(t *testing.T) {
			y.ask(t, y.thieves[who], func(q asked) bool {
				name := q.name
				if (name == "nodes" || name == "pods") && q.group != "" {
					name += " of " + q.group
				}
				// Who says to be a node and has no node's name is nobody.
				return slices.Contains(strings.Fields(table[name]), q.verb) || basic(q) && who != "noname"
			})
		})
	}
}

// viewHides is what the role view must never show, whatever else it shows.
var viewHides = []string{
	"secrets", "serviceaccounts/token", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes", "nodes/proxy",
	"roles", "rolebindings", "clusterroles", "clusterrolebindings", "certificatesigningrequests", "tokenreviews", "subjectaccessreviews",
	"localsubjectaccessreviews", "leases", "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
}

// viewShows is what it is there for.
var viewShows = []string{
	"bindings", "configmaps", "endpoints", "events", "limitranges", "resourcequotas", "resourcequotas/status",
	"replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status", "namespaces", "namespaces/status", "pods", "pods/log", "pods/status", "serviceaccounts", "services", "services/status",
	"ingresses", "ingresses/status", "networkpolicies", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates", "endpointslices", "controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status",
	"statefulsets", "statefulsets/scale", "statefulsets/status", "cronjobs", "cronjobs/status", "jobs", "jobs/status", "replicasets", "replicasets/scale", "replicasets/status", "poddisruptionbudgets", "poddisruptionbudgets/status",
	"persistentvolumeclaims", "persistentvolumeclaims/status",
	"horizontalpodautoscalers", "horizontalpodautoscalers/status",
	"rolloutpolicies", "rolloutpolicies/status", "daemonsetrollouts", "daemonsetrollouts/status",
	"daemonsetvariants", "daemonsetvariants/status",
}

// The role view reads, and reads neither Secrets nor what leads to more: no command in
// a container, no token, no way through a node, no roles.
func TestViewRole(t *testing.T) {
	y := newYard(t)
	// These are collected in view by a control loop, and there is none here.
	for _, role := range []string{"system:aggregate-to-view", "everynode:aggregate-metrics-to-view"} {
		y.make(t, &rbacv1.ClusterRoleBinding{ObjectMeta: meta("", "yard-"+role), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "yard-viewer"}}})
	}
	viewer := y.withCertificate(t, "yard-viewer")
	y.has(t, viewer, "/api/v1/namespaces/yard-a/configmaps")
	y.ask(t, viewer, func(q asked) bool {
		reading := slices.Contains([]string{"get", "list", "watch"}, q.verb)
		if q.group == "metrics.k8s.io" {
			return reading
		}
		if slices.Contains(viewHides, q.name) {
			return false
		}
		return reading && slices.Contains(viewShows, q.name) && q.group != "events.k8s.io" || basic(q)
	})
	y.refuses(t, viewer, y.escalations(t))
	for _, path := range []string{"/metrics", "/debug/pprof/heap", "/everynode/v1/encryption", "/everynode/v1/trust", "/logs", "/flagz", "/statusz", "/configz"} {
		code, body, err := y.send(t.Context(), viewer, request{method: http.MethodGet, path: path})
		if err != nil || code != http.StatusForbidden {
			t.Errorf("%s: %d %v %.100s", path, code, err, body)
		}
	}
}

// A token is good as long as its pod, its account and no longer, for whom it is meant.
func TestEndOfAToken(t *testing.T) {
	y := newYard(t)
	y.giveRoles(t)
	const path = "/api/v1/namespaces/yard-a/pods"
	shut := func(what, token string) {
		t.Helper()
		eventually(t, what, func() error {
			code, _, err := y.send(t.Context(), y.withToken(token), request{method: http.MethodGet, path: path})
			if err == nil && code != http.StatusUnauthorized {
				err = fmt.Errorf("%d", code)
			}
			return err
		})
	}
	good := y.boundToken(t)
	y.has(t, y.withToken(good), path)
	shut("one for another audience is no token here", y.boundToken(t, "elsewhere"))

	// With the pod.
	if err := y.admin.CoreV1().Pods("yard-a").Delete(t.Context(), "own", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	shut("it ends with its pod", good)
	again := &corev1.Pod{ObjectMeta: meta("yard-a", "own"), Spec: corev1.PodSpec{ServiceAccountName: "sa-own", NodeName: "yard-1", Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
	y.make(t, again)
	shut("another pod of its name does not revive it", good)

	// With the account, and with the roles.
	second := y.boundToken(t)
	y.has(t, y.withToken(second), path)
	if err := y.admin.RbacV1().RoleBindings("yard-a").Delete(t.Context(), "daemon", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what is taken from the account is taken from the token", func() error {
		code, _, err := y.send(t.Context(), y.withToken(second), request{method: http.MethodGet, path: path})
		if err == nil && code != http.StatusForbidden {
			err = fmt.Errorf("%d", code)
		}
		return err
	})
	if err := y.admin.CoreV1().ServiceAccounts("yard-a").Delete(t.Context(), "sa-own", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shut("it ends with its account", second)
	y.make(t, &corev1.ServiceAccount{ObjectMeta: meta("yard-a", "sa-own")})
	time.Sleep(100 * time.Millisecond) // for what would be remembered of the new account
	shut("another account of its name does not revive it", second)
}
