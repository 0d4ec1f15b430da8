package stolen

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	asJSON  = "application/json"
	asMerge = "application/merge-patch+json"
	asApply = "application/apply-patch+yaml"
)

// longTail makes of a token one that no server should look at.
var longTail = strings.Repeat("a", 16<<10)

// requestOf makes the request of a recorded case. It is false for what is no single
// request, but the outcome of a story: other tests tell those.
func (y *yard) requestOf(t *testing.T, text string) (r request, who string, ok bool) {
	t.Helper()
	parts := strings.SplitN(text, " | ", 3)
	if len(parts) == 2 {
		label, isLabel := strings.CutPrefix(parts[1], "label ")
		if !isLabel {
			return request{}, "", false
		}
		key, sub, _ := strings.Cut(label, " ")
		r = request{method: http.MethodPatch, path: "/api/v1/nodes/yard-1" + strings.TrimSpace(sub), header: contentType(asMerge),
			body: asBytes(t, object{"metadata": object{"labels": object{key: "x"}}})}
		return dry(r), parts[0], true
	}
	method, path, _ := strings.Cut(parts[1], " ")
	r = request{method: method, path: path, header: http.Header{}}
	who = parts[0]
	y.describe(t, &r, who, parts[2])
	return dry(r), who, true
}

// dry makes a dry run of what writes.
func dry(r request) request {
	switch r.method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return r
	}
	if strings.Contains(r.path, "dryRun") || !strings.HasPrefix(r.path, "/api") {
		return r
	}
	if strings.Contains(r.path, "?") {
		r.path += "&dryRun=All"
	} else {
		r.path += "?dryRun=All"
	}
	return r
}

type object = map[string]any

func contentType(s string) http.Header { return http.Header{"Content-Type": {s}} }

func asBytes(t *testing.T, body any) []byte {
	t.Helper()
	out, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// target is what a path names.
type target struct{ version, namespace, resource, name, sub string }

func targetOf(path string) target {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var out target
	switch {
	case len(parts) > 2 && parts[0] == "api":
		out.version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		out.version, parts = parts[1]+"/"+parts[2], parts[3:]
	default:
		return target{}
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		out.namespace, parts = parts[1], parts[2:]
	}
	for i, field := range []*string{&out.resource, &out.name, &out.sub} {
		if i < len(parts) {
			*field, _ = url.PathUnescape(parts[i])
		}
	}
	return out
}

// kinds are those of resources whose bodies are looked at.
var kinds = map[string]string{
	"pods": "Pod", "nodes": "Node", "events": "Event", "leases": "Lease", "csinodes": "CSINode", "configmaps": "ConfigMap", "secrets": "Secret",
	"certificatesigningrequests": "CertificateSigningRequest", "serviceaccounts": "ServiceAccount", "tokenreviews": "TokenReview",
	"selfsubjectaccessreviews": "SelfSubjectAccessReview", "subjectaccessreviews": "SubjectAccessReview", "selfsubjectrulesreviews": "SelfSubjectRulesReview",
	"selfsubjectreviews": "SelfSubjectReview", "localsubjectaccessreviews": "LocalSubjectAccessReview",
}

// describe fills in headers and the body by what a case says that it is about.
func (y *yard) describe(t *testing.T, r *request, who, about string) {
	t.Helper()
	if y.asSomebody(r, about) {
		return
	}
	at := targetOf(r.path)
	switch r.method {
	case http.MethodPost, http.MethodPut:
		r.header.Set("Content-Type", asJSON)
		r.body = y.bodyOf(t, r, at, who, about)
	case http.MethodPatch:
		patch := y.patchOf(t, at, about)
		r.header.Set("Content-Type", asMerge)
		if strings.Contains(about, "apply") {
			r.header.Set("Content-Type", asApply)
			patch = mergeInto(object{"apiVersion": at.version, "kind": kinds[at.resource], "metadata": object{"name": at.name}}, patch)
		}
		r.body = asBytes(t, patch)
	}
}

func mergeInto(into, from object) object {
	for k, v := range from {
		inner, ok1 := v.(object)
		outer, ok2 := into[k].(object)
		if ok1 && ok2 {
			mergeInto(outer, inner)
		} else {
			into[k] = v
		}
	}
	return into
}

var (
	upgradeWebSocket = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
	upgradeSPDY      = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
)

// asSomebody sets the headers of who wants to be somebody else or has something other.
func (y *yard) asSomebody(r *request, about string) bool {
	impersonation := map[string]http.Header{
		"as empty user": {"Impersonate-User": {""}}, "as front proxy": {"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}},
		"as sa": {"Impersonate-User": {"system:serviceaccount:kube-system:default"}}, "as itself": {"Impersonate-User": {"system:node:yard-1"}},
		"as node 2": {"Impersonate-User": {"system:node:yard-2"}, "Impersonate-Group": {"system:nodes"}}, "as masters": {"Impersonate-User": {"x"}, "Impersonate-Group": {"system:masters"}},
		"as anonymous": {"Impersonate-User": {"system:anonymous"}}, "as lower case": {"impersonate-user": {"admin"}}, "as admin": {"Impersonate-User": {"admin"}},
		"as group alone": {"Impersonate-Group": {"system:masters"}}, "as uid alone": {"Impersonate-Uid": {"1"}}, "as extra alone": {"Impersonate-Extra-Scopes": {"x"}},
		"metadata only":      {"Accept": {"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}},
		"metadata only list": {"Accept": {"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}},
		"table":              {"Accept": {"application/json;as=Table;g=meta.k8s.io;v=v1"}}, "bearer twice": {"Authorization": {"Bearer garbage", "Bearer other"}},
		"upgrade websocket": upgradeWebSocket, "upgrade spdy": upgradeSPDY,
	}
	header, ok := impersonation[about]
	if ok {
		r.header = header
	}
	return ok
}

// bodyOf is what a POST or PUT carries.
func (y *yard) bodyOf(t *testing.T, r *request, at target, who, about string) []byte {
	t.Helper()
	if body, ok := y.odd(t, r, at, about); ok {
		return body
	}
	plain := object{"apiVersion": at.version, "kind": kinds[at.resource], "metadata": object{"name": "yard-new"}}
	if at.name != "" {
		plain["metadata"] = object{"name": at.name}
	}
	var body any = plain
	switch {
	case at.sub == "eviction":
		body = evictionOf(at, about)
	case at.resource == "serviceaccounts" && at.sub == "token":
		body = y.tokenRequest(at, about)
	case at.resource == "certificatesigningrequests":
		body = csrFor(t, about, map[string]string{"node1": "yard-1", "ghost": "yard-9"}[who])
	case at.resource == "pods" && strings.HasPrefix(about, "create mirror"):
		body = y.mirrorAbout(about)
	case at.resource == "pods" && about == "odd identity mirror":
		body = y.mirror("yard-1", "yard-mir")
	case at.resource == "nodes" && strings.HasPrefix(about, "create self"):
		body = selfNode(about)
	case at.resource == "events":
		body = eventAbout(at, about)
	case at.resource == "leases" || at.resource == "csinodes":
		for _, word := range []string{"yard-1", "yard-2", "yard-7", "kube-controller-manager"} {
			if strings.HasSuffix(about, word) {
				plain["metadata"] = object{"name": word}
			}
		}
		if about == "own csinode without a node" {
			plain["metadata"] = object{"name": "yard-9"}
		}
		if at.resource == "csinodes" {
			plain["spec"] = object{"drivers": []any{}}
		}
	case strings.HasSuffix(at.resource, "accessreviews") || strings.HasSuffix(at.resource, "rulesreviews"):
		body = reviewAbout(at, about)
	case at.resource == "tokenreviews":
		body = &authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{APIVersion: at.version, Kind: "TokenReview"}, Spec: authenticationv1.TokenReviewSpec{Token: "x"}}
	case r.method == http.MethodPut:
		body = y.changed(t, at, about)
	}
	return asBytes(t, body)
}

// odd is a body that is none, or none of this kind.
func (y *yard) odd(t *testing.T, r *request, at target, about string) ([]byte, bool) {
	_, what, ok := strings.Cut(about, " ")
	if !ok || !strings.HasPrefix(about, at.resource+" ") && !strings.HasPrefix(about, "csrs ") {
		return nil, false
	}
	pod := func(change func(object)) []byte {
		o := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "yard-odd"}}
		change(o)
		return asBytes(t, o)
	}
	switch what {
	case "empty":
		return []byte{}, true
	case "null":
		return []byte("null"), true
	case "array":
		return []byte("[]"), true
	case "not JSON":
		return []byte("{"), true
	case "deep":
		return []byte(strings.Repeat("[", 20000)), true
	case "deep object":
		deep := strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)
		return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"deep":%s}`, at.version, kinds[at.resource], deep), true
	case "wrong kind":
		return []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`), true
	case "wrong version":
		return pod(func(o object) { o["apiVersion"] = "v9" }), true
	case "1 MiB annotation":
		return pod(func(o object) { o["metadata"].(object)["annotations"] = object{"a": strings.Repeat("a", 1<<20)} }), true
	case "strict unknown field":
		return pod(func(o object) { o["nope"] = 1 }), true
	case "cbor":
		r.header.Set("Content-Type", "application/cbor")
		return []byte{0xa0}, true
	case "protobuf bare":
		r.header.Set("Content-Type", "application/vnd.kubernetes.protobuf")
		return []byte("k8s\x00"), true
	case "protobuf garbage":
		r.header.Set("Content-Type", "application/vnd.kubernetes.protobuf")
		return []byte("k8s\x00\xff\xff\xff\xff"), true
	case "unknown accept":
		r.header.Set("Accept", "text/html")
		return pod(func(object) {}), true
	case "unknown type":
		r.header.Set("Content-Type", "text/html")
		return pod(func(object) {}), true
	case "gzip garbage":
		r.header.Set("Content-Encoding", "gzip")
		return []byte("nonsense"), true
	case "yaml bomb":
		r.header.Set("Content-Type", "application/yaml")
		return []byte(yamlBomb()), true
	}
	return nil, false
}

// yamlBomb is small as long as nobody writes it out.
func yamlBomb() string {
	var b strings.Builder
	b.WriteString("a: &a [x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c <= 'i'; c++ {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	return b.String()
}

func evictionOf(at target, about string) any {
	e := policyv1.Eviction{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"}, ObjectMeta: metav1.ObjectMeta{Namespace: at.namespace, Name: at.name}}
	switch {
	case strings.Contains(about, "body other"):
		e.Name = "other"
	case strings.Contains(about, "no name"):
		e.Name = ""
	case strings.Contains(about, "grace 0"):
		e.DeleteOptions = &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	}
	return e
}

func (y *yard) tokenRequest(at target, about string) any {
	bound := map[string]string{"sa-own": "own", "sa-second": "own-second", "sa-done": "own-done", "sa-unbound": "unbound", "sa-other": "other", "default": "own"}[at.name]
	if at.namespace == "yard-b" && about == "default of b" {
		bound = "own-b"
	}
	if bound == "" {
		bound = "own"
	}
	ref := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: bound, UID: types.UID(y.uids["Pod/"+bound])}
	r := authenticationv1.TokenRequest{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: ref}}
	audience := func(names ...string) { r.Spec.Audiences = names }
	expires := int64(0)
	if n, _ := fmt.Sscanf(about, "expires %d", &expires); n == 1 {
		r.Spec.ExpirationSeconds = &expires
		audience("in-pod")
	}
	switch about {
	case "audience in the pod", "body names other account":
		audience("in-pod")
	case "audience not in the pod":
		audience("nowhere")
	case "two audiences of the pod":
		audience("in-pod", "second")
	case "audience of the pod's CSI driver":
		audience("csi-audience")
	case "empty audience":
		audience("")
	case "API audience, pod without a token volume":
		audience("https://kubernetes.default.svc.cluster.local")
	case "not bound":
		r.Spec.BoundObjectRef = nil
	case "bound to node":
		ref.Kind, ref.Name, ref.UID = "Node", "yard-1", types.UID(y.uids["Node/yard-1"])
	case "bound without uid":
		ref.UID = ""
	case "bound wrong uid":
		ref.UID = "11111111-1111-1111-1111-111111111111"
	case "mirror pod":
		ref.Name, ref.UID = "mir-own", types.UID(y.uids["Pod/mir-own"])
	}
	return r
}

func selfNode(about string) any {
	n := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: meta("", "yard-9")}
	_, what, _ := strings.Cut(about, ": ")
	if key, ok := strings.CutPrefix(what, "label "); ok {
		n.Labels = map[string]string{key: "x"}
	}
	switch what {
	case "configSource":
		n.Spec.ConfigSource = &corev1.NodeConfigSource{ConfigMap: &corev1.ConfigMapNodeConfigSource{Namespace: "yard-a", Name: "cm-other", KubeletConfigKey: "k"}} //nolint:staticcheck // Deprecated, and still to be refused.
	case "finalizer":
		n.Finalizers = []string{"yard.example.com/wait"}
	case "podCIDR all":
		n.Spec.PodCIDR, n.Spec.PodCIDRs = "0.0.0.0/0", []string{"0.0.0.0/0"}
	case "podCIDR nonsense":
		n.Spec.PodCIDR, n.Spec.PodCIDRs = "x", []string{"x"}
	case "providerID":
		n.Spec.ProviderID = "x://y"
	case "uid":
		n.UID = "11111111-1111-1111-1111-111111111111"
	}
	return n
}

func eventAbout(at target, about string) any {
	name := "yard-ev"
	if at.name != "" {
		name = at.name
	}
	e := object{"apiVersion": at.version, "kind": "Event", "metadata": object{"name": name, "namespace": at.namespace},
		"involvedObject": object{"kind": "Pod", "namespace": at.namespace, "name": "own"}, "reason": "R"}
	switch about {
	case "about node 2":
		e["involvedObject"] = object{"kind": "Node", "name": "yard-2"}
	case "huge":
		e["message"] = strings.Repeat("a", 100000)
	}
	return e
}

func reviewAbout(at target, about string) any {
	if at.resource == "selfsubjectrulesreviews" {
		return object{"apiVersion": at.version, "kind": kinds[at.resource], "spec": object{"namespace": "yard-a"}}
	}
	spec := authorizationv1.SubjectAccessReviewSpec{User: "system:node:yard-2", Groups: []string{"system:nodes"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "yard-a", Verb: "get", Resource: "secrets", Name: "sec-other"}}
	o := object{"apiVersion": at.version, "kind": kinds[at.resource], "spec": spec}
	if at.resource == "selfsubjectaccessreviews" {
		o["spec"] = object{"resourceAttributes": spec.ResourceAttributes}
	}
	return o
}

// changed is an object as it is, with a change.
func (y *yard) changed(t *testing.T, at target, about string) any {
	t.Helper()
	body := object{"apiVersion": at.version, "kind": kinds[at.resource], "metadata": object{"name": at.name, "namespace": at.namespace}}
	name := at.name
	switch about {
	case "PUT own's name to other's URL":
		name = "yard-1"
	case "PUT other's name to own URL":
		name = "yard-2"
	}
	switch at.resource {
	case "pods", "nodes":
		prefix := "/api/v1/"
		if at.namespace != "" {
			prefix += "namespaces/" + at.namespace + "/"
		}
		stored, err := y.admin.CoreV1().RESTClient().Get().AbsPath(prefix+at.resource+"/"+name).SetHeader("Accept", asJSON).DoRaw(t.Context())
		if err != nil {
			return body
		}
		body = object{}
		if err := json.Unmarshal(stored, &body); err != nil {
			t.Fatal(err)
		}
		if about == "PUT status of other said to be here" {
			body["spec"].(object)["nodeName"] = "yard-1"
		}
		if about == "PUT status without rv" {
			delete(body["metadata"].(object), "resourceVersion")
		}
	}
	return body
}
