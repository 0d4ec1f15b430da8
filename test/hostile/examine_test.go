package hostile

import (
	"net/http"
	"net/url"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// examine checks that what was stored can be read in every form and written
// back as it is.
func (c *course) examine(made any) {
	c.Helper()
	got := c.must("read what was stored", c.get(jsonType))
	stored, err := parse(got.body)
	if err != nil {
		c.Fatal(err)
	}
	if !same(stored, made) {
		c.Fatalf("the answer was not what is stored:\n%s\n%s", encode(made), got.body)
	}
	typed, err := got.object()
	if err != nil {
		c.Fatalf("read what was stored: %v: %s", err, short(got.body))
	}
	var binary reply
	if c.kind.hasBinary() {
		binary = c.must("read as protobuf", c.get(protoType))
		obj, err := binary.object()
		if err != nil {
			c.Fatalf("read as protobuf: %v", err)
		}
		typed.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
		if !apiequality.Semantic.DeepEqual(obj, typed) {
			c.Fatalf("protobuf and JSON differ:\n%+v\n%+v", obj, typed)
		}
	}
	if err := c.must("print", c.get(tableType)).table(1); err != nil {
		c.Fatalf("print: %v", err)
	}
	c.must("read the metadata", c.get("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"))
	if c.kind.can("list") {
		c.listed()
	}
	if after := c.again("write back", c.path(), jsonType, got.body, stored); version(after) != version(stored) {
		// Storage tells an empty value from none, JSON does not: once is enough.
		if c.settled {
			c.Fatalf("each time it is written back, it changes:\n%s\n%s", got.body, encode(after))
		}
		c.settled = true
		c.examine(after)
		return
	}
	c.settled = false
	if c.kind.hasBinary() {
		c.again("write back as protobuf", c.path(), protoType, binary.body, stored)
	}
	if _, ok := c.kind.subresources["status"]; ok {
		c.again("write back the status", c.path()+"/status", jsonType, got.body, stored)
	}
}

// listed checks that a list with the object's name has it.
func (c *course) listed() {
	c.Helper()
	query := "fieldSelector=" + url.QueryEscape("metadata.name="+escapeSelector(c.name))
	list := request{method: http.MethodGet, path: c.kind.path(c.namespace, ""), query: query, accept: tableType}
	if err := c.must("list", list).table(1); err != nil {
		c.Fatalf("list: %v", err)
	}
	list.accept = protoType
	if !c.kind.hasBinary() {
		list.accept = jsonType
	}
	if _, err := c.must("list as protobuf", list).object(); err != nil {
		c.Fatalf("list as protobuf: %v", err)
	}
}

func escapeSelector(s string) string {
	return strings.NewReplacer(`\`, `\\`, `,`, `\,`, `=`, `\=`).Replace(s)
}

// again writes an object unchanged, which must be allowed and change nothing but,
// at most, its version.
func (c *course) again(what, path, format string, body []byte, stored any) any {
	c.Helper()
	got := c.must(what, request{method: http.MethodPut, path: path, contentType: format, accept: jsonType, body: body})
	after, err := parse(got.body)
	if err != nil {
		c.Fatal(err)
	}
	x, y := clone(after), clone(stored)
	for _, obj := range []any{x, y} {
		delete(at(obj, "metadata").(map[string]any), "resourceVersion")
	}
	if !same(x, y) || format != jsonType && version(after) != version(stored) {
		c.Fatalf("%s: this changed something:\n%s\n%s", what, encode(stored), got.body)
	}
	return after
}

// erase deletes the object, whatever holds it.
func (c *course) erase() {
	c.Helper()
	if c.Failed() {
		return
	}
	if c.kind.resource == "namespaces" && protected(c.name) || c.kind.resource == "priorityclasses" && strings.HasPrefix(c.name, "system-") {
		return
	}
	for range 5 {
		c.do(request{
			method: http.MethodDelete, path: c.path(), contentType: jsonType, accept: jsonType,
			body: encode(metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground), GracePeriodSeconds: new(int64(0))}),
		})
		left := c.do(c.get(jsonType))
		if left.code == http.StatusNotFound {
			return
		}
		free := c.do(request{
			method: http.MethodPatch, path: c.path(), contentType: "application/merge-patch+json", accept: jsonType, body: []byte(`{"metadata":{"finalizers":null}}`),
		})
		switch free.code {
		case http.StatusOK:
		case http.StatusNotFound:
			return // Whose finalizer it was has taken it away.
		default:
			c.Fatalf("its finalizers cannot be taken from %s: %d %s", c.path(), free.code, free.body)
		}
		if _, ok := c.kind.subresources["finalize"]; ok {
			c.finalize(left.body)
		}
	}
	if left := c.do(c.get(jsonType)); left.code != http.StatusNotFound {
		c.Fatalf("%s cannot be deleted: %d %s", c.path(), left.code, left.body)
	}
}

func (c *course) finalize(namespace []byte) {
	obj, err := parse(namespace)
	if err != nil {
		c.Fatal(err)
	}
	if spec, ok := at(obj, "spec").(map[string]any); ok {
		spec["finalizers"] = nil
	}
	delete(at(obj, "metadata").(map[string]any), "resourceVersion")
	c.do(request{method: http.MethodPut, path: c.path() + "/finalize", contentType: jsonType, accept: jsonType, body: encode(obj)})
}

func protected(namespace string) bool {
	switch namespace {
	case "default", "kube-system", "kube-public", "kube-node-lease", "hostile":
		return true
	}
	return false
}
