package hostile

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// write changes the stored object in up to a few ways and examines it after each
// that is let through.
func (c *course) write() {
	for range 4 {
		if c.empty() {
			return
		}
		current, ok := c.current()
		if !ok {
			return // a write has deleted it
		}
		before := version(current)
		switch c.below(8) {
		case 0, 1:
			c.put(c.path(), current)
		case 2:
			if _, ok := c.kind.subresources["status"]; ok {
				c.put(c.path()+"/status", current)
			}
		case 3:
			c.patch(types.JSONPatchType, c.jsonPatch(current))
		case 4:
			c.patch(types.MergePatchType, c.partOf(current))
		case 5:
			c.patch(types.StrategicMergePatchType, c.strategic(current))
		case 6:
			c.apply(current)
		case 7:
			c.subresource(current)
		}
		if after, ok := c.current(); ok && version(after) != before && !c.kind.answered() {
			c.examine(after)
		}
	}
}

func (c *course) current() (any, bool) {
	got := c.do(c.get(jsonType))
	if got.code != http.StatusOK {
		return nil, false
	}
	obj, err := parse(got.body)
	if err != nil {
		c.Fatal(err)
	}
	return obj, true
}

func (c *course) put(path string, current any) {
	obj := c.change(clone(current), goType(c.kind.GroupVersionKind), 1+c.below(4))
	tame(obj)
	format := pick(c.source, formats)
	user, group := c.identity()
	c.do(request{method: http.MethodPut, path: path, query: pick(c.source, options), contentType: format, accept: jsonType, body: c.encode(obj, format), user: user, group: group})
}

// patch sends a patch to the object or its status.
func (c *course) patch(kind types.PatchType, patch any) {
	path := c.path()
	if _, ok := c.kind.subresources["status"]; ok && c.oneIn(4) {
		path += "/status"
	}
	if strings.HasPrefix(c.kind.Group, "admissionregistration") {
		return // it could not be tamed
	}
	body := encode(patch)
	if c.oneIn(16) {
		body = c.text(body)
	}
	r := request{method: http.MethodPatch, path: path, query: pick(c.source, options), contentType: string(kind), accept: jsonType, body: body}
	if kind == types.ApplyYAMLPatchType {
		r.query = pick(c.source, []string{"fieldManager=a&force=true", "fieldManager=a", "fieldManager=b&force=true&fieldValidation=Strict", "force=true", "fieldManager=a&force=true&dryRun=All"})
	}
	c.do(r)
}

// jsonPatch makes a list of operations on places that the object has, or nearly.
func (c *course) jsonPatch(current any) any {
	var pointers []string
	for _, p := range paths(current, "") {
		pointers = append(pointers, p, p+"/-", p+"/0", p+"/x", p+"/-1", p+"/99999999999")
	}
	patch := []any{}
	for range 1 + c.below(4) {
		op := map[string]any{
			"op":   pick(c.source, []string{"replace", "add", "remove", "copy", "move", "test", "x"}),
			"path": pick(c.source, pointers),
			"from": pick(c.source, pointers),
		}
		if !c.oneIn(6) {
			op["value"] = c.generate(nil, 2)
		}
		patch = append(patch, op)
	}
	return c.change(patch, nil, c.below(2))
}

// paths lists the JSON pointers of all places in an object.
func paths(v any, at string) []string {
	out := []string{at}
	switch v := v.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			out = append(out, paths(v[key], at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key))...)
		}
	case []any:
		for i := range v {
			out = append(out, paths(v[i], at+"/"+itoa(i))...)
		}
	}
	return out
}

// partOf keeps some members of the object and changes them.
func (c *course) partOf(current any) any {
	patch := clone(current).(map[string]any)
	for _, key := range sortedKeys(patch) {
		if c.oneIn(3) {
			delete(patch, key)
		}
	}
	if m, ok := patch["metadata"].(map[string]any); ok {
		delete(m, "resourceVersion")
		delete(m, "managedFields")
	}
	return c.change(patch, goType(c.kind.GroupVersionKind), 1+c.below(4))
}

// strategic adds directives to a part of the object.
func (c *course) strategic(current any) any {
	patch := c.partOf(current)
	for range 1 + c.below(3) {
		all := slots(patch, nil, func(any) {})
		maps := slices.DeleteFunc(all, func(s slot) bool { _, ok := s.value.(map[string]any); return !ok })
		if len(maps) == 0 {
			break
		}
		m := pick(c.source, maps).value.(map[string]any)
		keys := append(sortedKeys(m), "finalizers", "containers", "x")
		switch c.below(5) {
		case 0:
			m["$patch"] = pick(c.source, []any{"replace", "delete", "merge", "x", nil})
		case 1:
			m["$setElementOrder/"+pick(c.source, keys)] = c.generate(nil, 2)
		case 2:
			m["$deleteFromPrimitiveList/"+pick(c.source, keys)] = []any{c.word(), nil}
		case 3:
			m["$retainKeys"] = []any{pick(c.source, keys)}
		case 4:
			m["$"+pick(c.source, keys)] = c.anything()
		}
	}
	return patch
}

// apply is server-side apply.
func (c *course) apply(current any) {
	obj := c.partOf(current)
	if m, ok := obj.(map[string]any); ok && !c.oneIn(4) {
		m["apiVersion"], m["kind"] = c.kind.GroupVersion().String(), c.kind.Kind
		if _, ok := m["metadata"].(map[string]any); !ok {
			m["metadata"] = map[string]any{"name": c.name}
		}
	}
	c.patch(types.ApplyYAMLPatchType, obj)
}

// subresource posts, puts or patches a changed body to a subresource.
func (c *course) subresource(current any) {
	names := sortedKeys(c.kind.subresources)
	names = slices.DeleteFunc(names, func(n string) bool {
		s := c.kind.subresources[n]
		return !slices.Contains(s.verbs, "create") && !slices.Contains(s.verbs, "update") || streams[n]
	})
	if len(names) == 0 {
		return
	}
	name := pick(c.source, names)
	sub := c.kind.subresources[name]
	body := clone(bodies[name])
	if body == nil {
		body = clone(current)
	}
	if m, ok := at(body, "metadata").(map[string]any); ok {
		m["name"], m["namespace"] = c.name, c.namespace
	}
	body = c.change(body, goType(sub.GroupVersionKind), c.below(4))
	method := http.MethodPost
	if !slices.Contains(sub.verbs, "create") {
		method = http.MethodPut
	}
	format := pick(c.source, formats)
	c.do(request{method: method, path: c.path() + "/" + name, query: pick(c.source, options), contentType: format, accept: jsonType, body: c.encode(body, format)})
}

// streams are subresources that take no body.
var streams = map[string]bool{"exec": true, "attach": true, "portforward": true, "log": true, "proxy": true}

// bodies are what subresources take that are not the object itself.
var bodies = map[string]any{
	"eviction": object(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{},"deleteOptions":{"gracePeriodSeconds":1,"preconditions":{"uid":"x"},"propagationPolicy":"Background"}}`),
	"binding":  object(`{"apiVersion":"v1","kind":"Binding","metadata":{"annotations":{"a":"b"}},"target":{"apiVersion":"v1","kind":"Node","name":"n1"}}`),
	"token":    object(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{},"spec":{"audiences":["a"],"expirationSeconds":3600,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p","uid":"x"}}}`),
	"scale":    object(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{},"spec":{"replicas":2},"status":{"replicas":1,"selector":"a=b"}}`),
}

func object(text string) any {
	v, err := parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return v
}
