package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestSizeLimits sends what is as large as may be, and a byte more. The limits
// and the messages are those of kube-apiserver and etcd.
func TestSizeLimits(t *testing.T) {
	const mebibyte = 1 << 20
	a := server()
	prepare(t, a)
	large := func(n int) string { return strings.Repeat("a", n) }
	configMap := func(data string) string { return `{"metadata":{"name":"large"},"data":{"k":"` + data + `"}}` }
	annotated := func(n int) string { return `{"metadata":{"name":"large","annotations":{"k":"` + large(n-1) + `"}}}` }
	patchOf := func(n int) string { return `[{"op":"test","path":"/x","value":"` + large(n) + `"}]` }
	operations := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"op":"add","path":"/metadata/labels","value":{}},`, n), ",") + "]"
	}
	const path, object = "/api/v1/namespaces/hostile/configmaps", "/api/v1/namespaces/hostile/configmaps/kept"
	post(t, a, path, `{"metadata":{"name":"kept"}}`)
	// The key and its length in the object's annotations count as well, so this is one annotation of 256 KiB in all.
	const bodyLimit, annotationLimit = 3 * mebibyte, 256 << 10
	for name, c := range map[string]struct {
		method, path, contentType, body string
		code                            int
		message                         string
	}{
		"a ConfigMap of 1 MiB": {http.MethodPost, path, jsonType, configMap(large(mebibyte)), 201, ""},
		"a ConfigMap of more":  {http.MethodPost, path, jsonType, configMap(large(mebibyte + 1)), 422, `ConfigMap "large" is invalid: []: Too long: may not be more than 1048576 bytes`},
		"a Secret of 1 MiB":    {http.MethodPost, "/api/v1/namespaces/hostile/secrets", jsonType, `{"metadata":{"name":"large"},"stringData":{"k":"` + large(mebibyte) + `"}}`, 201, ""},
		"a Secret of more": {http.MethodPost, "/api/v1/namespaces/hostile/secrets", jsonType, `{"metadata":{"name":"large"},"stringData":{"k":"` + large(mebibyte+1) + `"}}`, 422,
			`Secret "large" is invalid: data: Too long: may not be more than 1048576 bytes`},
		"annotations of 256 KiB": {http.MethodPost, path, jsonType, annotated(annotationLimit), 201, ""},
		"annotations of more": {http.MethodPost, path, jsonType, annotated(annotationLimit + 1), 422,
			`ConfigMap "large" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes`},
		"a body of 3 MiB":                 {http.MethodPost, path, jsonType, configMap(large(bodyLimit - len(configMap("")))), 422, `ConfigMap "large" is invalid: []: Too long: may not be more than 1048576 bytes`},
		"a body of more":                  {http.MethodPost, path, jsonType, configMap(large(bodyLimit - len(configMap("")) + 1)), 413, "Request entity too large: limit is 3145728"},
		"a patch of more":                 {http.MethodPatch, object, "application/merge-patch+json", `{"data":{"k":"` + large(bodyLimit) + `"}}`, 413, "Request entity too large: limit is 3145728"},
		"a JSON patch of more than 3 MiB": {http.MethodPatch, object, "application/json-patch+json", patchOf(bodyLimit), 413, "Request entity too large: limit is 3145728"},
		"a JSON patch of too many operations": {http.MethodPatch, object, "application/json-patch+json", operations(10001), 413,
			"Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"},
		"more than etcd takes": {http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/hostile/rolebindings", jsonType,
			`{"metadata":{"name":"large"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"` + large(2*mebibyte) + `"}}`, 413,
			"Request entity too large: etcdserver: request is too large"},
		"a patch that is too deep": {http.MethodPatch, object, "application/merge-patch+json", strings.Repeat(`{"a":`, 9000) + `"` + large(mebibyte) + `"` + strings.Repeat("}", 9000), 400,
			"the patch has 9000 levels, more than 64"},
		"nesting that is too deep": {http.MethodPost, path, jsonType, strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000), 400, "exceeded max depth"},
		"YAML that grows":          {http.MethodPost, path, yamlType, billionLaughs(), 400, "excessive aliasing"},
	} {
		t.Run(name, func(t *testing.T) {
			got := a.send(context.Background(), request{method: c.method, path: c.path, contentType: c.contentType, accept: jsonType, body: []byte(c.body)})
			if err := got.wrong(); err != nil {
				t.Fatal(err)
			}
			message := ""
			if got.code >= http.StatusBadRequest {
				s, err := got.status()
				if err != nil {
					t.Fatal(err)
				}
				message = s.Message
			} else {
				a.send(context.Background(), request{method: http.MethodDelete, path: c.path + "/large"})
			}
			if got.code != c.code || message != c.message && (c.code != http.StatusBadRequest || !strings.Contains(message, c.message)) {
				t.Errorf("got %d %.300q, want %d %q", got.code, message, c.code, c.message)
			}
		})
	}
}

// billionLaughs is a small text that says a lot.
func billionLaughs() string {
	text := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 9), ","))
	}
	return text
}
