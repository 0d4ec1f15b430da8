package hostile

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzRequests sends requests whose method, path, parameters, formats and bodies
// need not fit together: lists, watches and deletions above all.
func FuzzRequests(f *testing.F) {
	for _, seed := range scripts() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := server()
		s := &source{data: data}
		k := &a.kinds[s.below(len(a.kinds))]
		c := &course{T: t, api: a, kind: k, mutator: &mutator{source: s, lore: knowledge()}}
		c.stock()
		c.inspect(c.request())
	})
}

// stock makes the kind's first seed, if it is not there, so that there is
// something to ask for.
func (c *course) stock() {
	prepare(c.T, c.api)
	if len(c.kind.seeds) == 0 || !c.kind.can("create") || !c.kind.can("get") {
		return
	}
	obj := clone(c.kind.seeds[0])
	tame(obj)
	c.name, c.namespace = textAt(obj, "metadata", "name"), namespace
	c.do(request{method: http.MethodPost, path: c.kind.path(namespace, ""), contentType: jsonType, accept: jsonType, body: encode(obj)})
}

var methods = []string{
	http.MethodGet, http.MethodGet, http.MethodGet, http.MethodGet, http.MethodDelete, http.MethodDelete, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodHead, http.MethodOptions, "get", "X",
}

var contentTypes = []string{
	jsonType, jsonType, yamlType, protoType, "", "application/merge-patch+json", "application/json-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/apply-patch+cbor", "application/cbor",
	"text/plain", "x", "application/json; charset=utf-16", "application/json;stream=watch", "*/*", ";", "application/vnd.kubernetes.protobuf;stream=watch", "\x00", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded",
}

var accepts = []string{
	jsonType, jsonType, protoType, tableType, yamlType, "", "*/*", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v9;g=meta.k8s.io", "application/json;as=X;v=v1;g=y", "text/html", "application/json;q=x", "application/json;stream=watch", "a/b/c", ";;", strings.Repeat("application/json,", 500), "application/cbor", "application/json;profile=x", "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
}

// request makes one up.
func (c *course) request() request {
	r := request{method: pick(c.source, methods), path: c.where(), query: c.query(), accept: pick(c.source, accepts)}
	if r.method != http.MethodGet || c.oneIn(8) {
		r.contentType, r.body = pick(c.source, contentTypes), c.body()
	}
	if strings.HasPrefix(c.kind.Group, "admissionregistration") && r.method != http.MethodGet {
		r.query += "&dryRun=All" // what is made here could not be tamed
	}
	r.user, r.group = c.identity()
	return r
}

func (c *course) where() string {
	name := pick(c.source, []string{"", c.name, "none", "..", "a b", "%2f", "\x00", "é", strings.Repeat("a", 5000)})
	path := c.kind.path(pick(c.source, []string{namespace, namespace, "", "none", "..", "A B"}), name)
	if c.oneIn(4) {
		path += "/" + pick(c.source, append(sortedKeys(c.kind.subresources), "x", "status", "scale", "/", "proxy", "status/x"))
	}
	switch c.below(12) {
	case 11:
		path = strings.Replace(path, "/v1/", "/v1/watch/", 1)
	case 10:
		path = pick(c.source, []string{
			"/", "/api", "/apis", "/apis/apps", "/apis/x/v1", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/version", "/healthz/x", "/readyz", "/livez/ping", "/metrics", "/.well-known/openid-configuration", "/openid/v1/jwks",
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "//api/v1", "/api/v1/", "/api/v1/namespaces/hostile", "/api/v1/namespaces//pods", "/api/v1/componentstatuses", "/debug/pprof/x", "/logs/", "/" + c.word(),
		})
	}
	return path
}

// parameters are those that some request has.
var parameters = []string{
	"limit", "continue", "resourceVersion", "resourceVersionMatch", "fieldSelector", "labelSelector", "timeoutSeconds", "timeout", "sendInitialEvents", "allowWatchBookmarks", "watch", "includeObject",
	"propagationPolicy", "gracePeriodSeconds", "orphanDependents", "dryRun", "preconditions", "ignoreStoreReadErrorWithClusterBreakingPotential", "fieldManager", "fieldValidation", "force", "pretty",
	"container", "follow", "tailLines", "sinceSeconds", "sinceTime", "limitBytes", "timestamps", "previous", "stream", "stdin", "tty", "command", "ports", "path", "kind", "apiVersion", "shardSelector",
}

var values = []string{
	"", "true", "false", "1", "0", "-1", "2", "500", "9223372036854775807", "18446744073709551616", "x", "1.5", "\x00", "Exact", "NotOlderThan", "Orphan", "Foreground", "Background", "All", "Strict", "None", "Object", "Metadata",
	"metadata.name=a", "metadata.name!=a", "metadata.name==", "metadata.name=", "spec.nodeName=n1", "spec.nodeName!=", "status.phase=Running,spec.nodeName=", "metadata.labels=a", "=", "==", "a=b=c", "a,b", `a\=b`, "metadata.namespace=hostile", "type=Normal",
	"a=b", "a!=b", "a in (b,c)", "a notin (b)", "!a", "a", "a in ()", "a>1", "a<x", "(", "a in (", "a=b,,c", "é=é", "a.b/c=d", "/=", strings.Repeat("a=b,", 3000) + "a",
	"2026-01-01T00:00:00Z", "10s", "-10s",
}

func (c *course) query() string {
	if c.oneIn(16) {
		return string(c.rest(60)) // need not be a query at all
	}
	var out []string
	for range c.below(5) {
		name, value := pick(c.source, parameters), pick(c.source, values)
		switch c.below(6) {
		case 4:
			value = c.word()
		case 5:
			value = c.token()
		}
		if name == "resourceVersion" && len(value) > 6 {
			value = "1" // a version that is far ahead would be waited for
		}
		out = append(out, url.QueryEscape(name)+"="+url.QueryEscape(value))
	}
	return strings.Join(out, "&")
}

// token makes a token to continue a list with.
func (c *course) token() string {
	t := object(`{"v":"meta.k8s.io/v1","rv":1,"start":"hostile/a\u0000"}`)
	text := encode(c.change(t, nil, c.below(3)))
	if c.oneIn(3) {
		text = c.text(text)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func (c *course) body() []byte {
	switch c.below(8) {
	case 0:
		return nil
	case 1:
		return c.rest(200)
	case 2:
		return pick(c.source, [][]byte{{}, []byte("null"), []byte("[]"), []byte("{}"), []byte(`"x"`), []byte("1"), []byte("k8s\x00"), {0}, []byte("---\n"), []byte("{\"kind\":\"Status\",\"apiVersion\":\"v1\"}"), bytes.Repeat([]byte("["), 100000), bytes.Repeat([]byte(`{"a":`), 50000)})
	case 3:
		return encode(c.change(object(`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":1,"propagationPolicy":"Background","preconditions":{"uid":"x","resourceVersion":"1"},"dryRun":["All"],"orphanDependents":true}`), nil, c.below(4)))
	}
	if len(c.kind.seeds) == 0 {
		return nil
	}
	obj := c.change(clone(pick(c.source, c.kind.seeds)), goType(c.kind.GroupVersionKind), c.below(3))
	return c.text(c.encode(obj, pick(c.source, formats)))
}

// glance is how long a watch is looked at.
const glance = 20 * time.Millisecond

// inspect sends a request and looks at what comes back.
func (c *course) inspect(r request) {
	c.Helper()
	limit := patience
	if watches(r) {
		limit = glance
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	got := c.send(ctx, r)
	if watches(r) && len(got.panicked) == 0 && (got.err != nil || got.code == http.StatusOK) {
		if err := watched(got); err != nil {
			c.Fatalf("%v\n%v", r, err)
		}
		return
	}
	if err := got.wrong(); err != nil && !got.plain(r) {
		c.Fatalf("%v\n%v", r, err)
	}
}

func watches(r request) bool {
	return strings.Contains(r.query, "watch") || strings.Contains(r.path, "/watch/") || strings.Contains(r.query, "follow")
}

// plain says whether this is an answer that is no object for a reason.
func (r reply) plain(to request) bool {
	if len(r.panicked) > 0 || r.err != nil {
		return false
	}
	switch kind := r.header.Get("Content-Type"); {
	case r.code == http.StatusGatewayTimeout:
		s, err := r.status()
		return err == nil && strings.Contains(s.Message, "Too large resource version")
	case r.code >= http.StatusInternalServerError:
		return false
	case to.method == http.MethodHead || to.method == http.MethodOptions:
		return true
	case r.code == http.StatusNotFound || r.code == http.StatusMethodNotAllowed:
		return strings.HasPrefix(kind, "text/plain")
	case strings.HasPrefix(to.path, "/openapi"), strings.HasPrefix(to.path, "/openid"):
		return r.code == http.StatusNotAcceptable // without a body, or with a text
	}
	return false
}

// watched reads the events of a watch; the last may be cut off.
func watched(got reply) error {
	if !strings.HasPrefix(got.header.Get("Content-Type"), jsonType) || !bytes.HasPrefix(got.body, []byte(`{"type":`)) {
		return nil // nobody watched after all
	}
	lines := bytes.Split(got.body, []byte("\n"))
	for _, line := range lines[:len(lines)-1] {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("an event that is none: %w: %s", err, short(line))
		}
		if !slices.Contains([]string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"}, event.Type) {
			return fmt.Errorf("an event of no type: %s", short(line))
		}
		if _, err := decodeStrict(event.Object); err != nil {
			return fmt.Errorf("an event with an object that is none: %w: %s", err, short(line))
		}
	}
	return nil
}
