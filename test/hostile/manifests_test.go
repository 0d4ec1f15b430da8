package hostile

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// FuzzManifests creates changed objects of every kind. What is stored is then
// read, listed, printed, written back, patched, and deleted.
func FuzzManifests(f *testing.F) {
	for _, seed := range scripts() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := server()
		prepare(t, a)
		s := &source{data: data}
		k := &a.kinds[s.below(len(a.kinds))]
		if len(k.seeds) == 0 || !k.can("create") {
			return
		}
		m := &mutator{source: s, lore: knowledge()}
		c := &course{T: t, api: a, mutator: m, kind: k}
		c.create(m.change(clone(pick(s, k.seeds)), goType(k.GroupVersionKind), pick(s, []int{0, 1, 1, 2, 1, 3, 6})))
	})
}

// course is what is done with one object. It fails the test at the first thing
// that is wrong.
type course struct {
	*testing.T
	*api
	*mutator
	kind *kind
	// namespace and name of the object once it is stored.
	namespace, name string
	// settled says that it was written back once already.
	settled bool
}

// do sends a request whose answer must be a good one, whatever it says.
func (c *course) do(r request) reply {
	c.Helper()
	got := c.send(context.Background(), r)
	if err := got.wrong(); err != nil && !c.kind.misread(r, got) {
		c.Fatalf("%v\n%v", r, err)
	}
	return got
}

// misread says that the answer is the library's own to a patch that does not fit one
// of the kinds that it stores itself, which it calls an internal error.
func (k *kind) misread(r request, got reply) bool {
	merged := r.contentType == string(types.ApplyYAMLPatchType) || r.contentType == string(types.StrategicMergePatchType)
	if !k.answered() || !merged || got.code != http.StatusInternalServerError {
		return false
	}
	status, err := parse(got.body)
	message := textAt(status, "message")
	return err == nil && slices.ContainsFunc(misreadings, func(begin string) bool { return strings.HasPrefix(message, begin) })
}

// misreadings are how its words begin: of a patch that cannot be read as the kind, of
// directives in it that there are not, and of lists that cannot be merged.
var misreadings = []string{"failed to create typed patch object", "unknown patch type", "invalid patch format", "list element types are not identical"}

// must is do for requests that cannot be refused.
func (c *course) must(what string, r request) reply {
	c.Helper()
	got := c.do(r)
	if got.code != http.StatusOK {
		c.Fatalf("%s: %d %s\n%v", what, got.code, got.body, r)
	}
	return got
}

// formats are the ways to write a manifest.
var formats = []string{jsonType, yamlType, protoType, jsonType}

// options are the parameters of writes.
var options = []string{
	"", "", "", "fieldValidation=Strict", "fieldValidation=Warn", "fieldValidation=Ignore", "fieldManager=a", "dryRun=All", "dryRun=All&fieldValidation=Strict",
	"", "", "", "fieldValidation=x", "dryRun=x", "fieldManager=%00", "pretty=true",
}

func (c *course) create(obj any) {
	tame(obj)
	format := pick(c.source, formats)
	body := c.encode(obj, format)
	if c.oneIn(16) {
		body = c.text(body)
	}
	query := pick(c.source, options)
	user, group := c.identity()
	r := request{method: http.MethodPost, path: c.kind.path(namespace, ""), query: query, contentType: format, accept: jsonType, body: body, user: user, group: group}
	got := c.do(r)
	if got.code != http.StatusCreated {
		return
	}
	made, err := parse(got.body)
	if err != nil {
		c.Fatalf("%v\n%v", r, err)
	}
	if _, err := got.object(); err != nil {
		c.Fatalf("%v\n%v: %s", r, err, short(got.body))
	}
	c.name, c.namespace = textAt(made, "metadata", "name"), textAt(made, "metadata", "namespace")
	if !c.kind.can("get") {
		return // a review
	}
	defer c.erase()
	if isDryRun(query) {
		if got := c.do(c.get(jsonType)); got.code != http.StatusNotFound {
			c.Fatalf("%v\nstored, though it was a dry run: %d", r, got.code)
		}
		return
	}
	if !c.kind.answered() {
		c.examine(made)
	}
	c.write()
}

func isDryRun(query string) bool { return strings.Contains(query, "dryRun=All") }

// identity is mostly the administrator, now and then a node or nobody.
func (c *course) identity() (user, group string) {
	switch c.below(40) {
	case 39:
		return "system:node:n1", "system:nodes"
	case 38:
		return "system:node:", "system:nodes"
	}
	return "", ""
}

// encode writes the object in the format, or as JSON if it cannot be said in it.
func (c *course) encode(obj any, format string) []byte {
	raw := encode(obj)
	switch format {
	case yamlType:
		if out, err := yaml.JSONToYAML(raw); err == nil {
			return out
		}
	case protoType:
		if out, err := toProtobuf(raw); err == nil {
			return out
		}
	}
	return raw
}

// toProtobuf is lenient: what the Go type does not know is left out.
func toProtobuf(raw []byte) ([]byte, error) {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	return runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), obj)
}

// tame keeps webhooks and policies, which would have a say in all that comes
// after them, to objects that do not exist.
func tame(obj any) {
	switch textAt(obj, "kind") {
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		hooks, _ := at(obj, "webhooks").([]any)
		for _, h := range hooks {
			bind(h)
		}
	case "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy":
		bind(at(obj, "spec", "matchConstraints"))
	case "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding":
		if spec, ok := at(obj, "spec").(map[string]any); ok {
			spec["policyName"] = "none"
		}
	}
}

func bind(v any) {
	if m, ok := v.(map[string]any); ok {
		m["objectSelector"] = map[string]any{"matchLabels": map[string]any{"hostile.example.com/nothing": "has-this"}}
	}
}

func (c *course) path() string { return c.kind.path(c.namespace, c.name) }

func (c *course) get(accept string) request {
	return request{method: http.MethodGet, path: c.path(), accept: accept}
}

// version is an object's resourceVersion.
func version(v any) string { return textAt(v, "metadata", "resourceVersion") }

func same(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
