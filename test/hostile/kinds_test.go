package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// namespace is where the objects of this package go.
const namespace = "hostile"

// kind is one that the server says it serves.
type kind struct {
	schema.GroupVersionKind
	resource   string
	namespaced bool
	verbs      []string
	// subresources that something can be written to, by name.
	subresources map[string]subresource
	// seeds are valid objects.
	seeds []any
}

// answered says that the API server itself writes a status into each object of the kind
// as soon as it is there, so that two readings of it may differ.
func (k *kind) answered() bool {
	return k.Group == "apiextensions.k8s.io" || k.Group == "apiregistration.k8s.io"
}

// hasBinary says whether the kind can be written as protobuf.
func (k *kind) hasBinary() bool {
	known := goType(k.GroupVersionKind)
	return known == nil || reflect.PointerTo(known).Implements(reflect.TypeFor[runtime.ProtobufMarshaller]())
}

type subresource struct {
	schema.GroupVersionKind
	verbs []string
}

// goType is nil for kinds that client-go does not know.
func goType(gvk schema.GroupVersionKind) reflect.Type { return scheme.Scheme.AllKnownTypes()[gvk] }

// path is the URL of the kind's objects, or of one if name is not empty.
func (k *kind) path(namespace, name string) string {
	p := prefix(k.GroupVersion())
	if k.namespaced && namespace != "" {
		p += "/namespaces/" + namespace
	}
	p += "/" + k.resource
	if name != "" {
		p += "/" + name
	}
	return p
}

func prefix(v schema.GroupVersion) string {
	if v.Group == "" {
		return "/api/" + v.Version
	}
	return "/apis/" + v.String()
}

func (k *kind) can(verb string) bool { return slices.Contains(k.verbs, verb) }

// discover asks the server what it serves.
func (a *api) discover() ([]kind, error) {
	var groups metav1.APIGroupList
	if err := a.read("/apis", &groups); err != nil {
		return nil, err
	}
	versions := []schema.GroupVersion{{Version: "v1"}}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			versions = append(versions, schema.GroupVersion{Group: g.Name, Version: v.Version})
		}
	}
	seeds, err := loadSeeds()
	if err != nil {
		return nil, err
	}
	var kinds []kind
	for _, v := range versions {
		var list metav1.APIResourceList
		if err := a.read(prefix(v), &list); err != nil {
			return nil, err
		}
		kinds = append(kinds, ofVersion(v, list.APIResources, seeds)...)
	}
	return kinds, nil
}

func ofVersion(v schema.GroupVersion, resources []metav1.APIResource, seeds map[schema.GroupVersionKind][]any) (out []kind) {
	for _, r := range resources {
		gvk := v.WithKind(r.Kind)
		if r.Version != "" {
			gvk.Group, gvk.Version = r.Group, r.Version
		}
		name, sub, isSub := strings.Cut(r.Name, "/")
		if !isSub {
			out = append(out, kind{
				GroupVersionKind: gvk, resource: name, namespaced: r.Namespaced, verbs: r.Verbs,
				subresources: map[string]subresource{}, seeds: seeds[gvk],
			})
			continue
		}
		i := slices.IndexFunc(out, func(k kind) bool { return k.resource == name })
		if i >= 0 {
			out[i].subresources[sub] = subresource{gvk, r.Verbs}
		}
	}
	return out
}

func (a *api) read(path string, into any) error {
	got := a.send(context.Background(), request{method: http.MethodGet, path: path, accept: "application/json"})
	if got.err != nil || got.code != http.StatusOK {
		return fmt.Errorf("read %s: %d %s %w", path, got.code, got.body, got.err)
	}
	return json.Unmarshal(got.body, into)
}

// loadSeeds reads the valid objects.
func loadSeeds() (map[schema.GroupVersionKind][]any, error) {
	files, err := filepath.Glob("testdata/objects/*.yaml")
	if err != nil {
		return nil, err
	}
	seeds := map[schema.GroupVersionKind][]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, doc := range bytes.Split(text, []byte("\n---\n")) {
			raw, err := yaml.YAMLToJSON(doc)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			obj, err := parse(raw)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			gvk := schema.FromAPIVersionAndKind(textAt(obj, "apiVersion"), textAt(obj, "kind"))
			seeds[gvk] = append(seeds[gvk], obj)
		}
	}
	return seeds, nil
}

// TestEveryKindHasAValidSeed keeps the fuzzer from passing by a kind.
func TestEveryKindHasAValidSeed(t *testing.T) {
	a := server()
	if len(a.kinds) < 20 {
		t.Errorf("found only %d kinds", len(a.kinds))
	}
	prepare(t, a)
	for _, k := range a.kinds {
		if !k.can("create") {
			continue
		}
		if len(k.seeds) == 0 {
			t.Errorf("%v has no object in testdata/objects", k.GroupVersionKind)
		}
		for _, seed := range k.seeds {
			got := a.send(context.Background(), request{
				method: http.MethodPost, path: k.path(namespace, ""), query: "dryRun=All&fieldValidation=Strict", contentType: "application/json", body: encode(seed),
			})
			if got.code != http.StatusCreated {
				t.Errorf("%v: %d %s", k.GroupVersionKind, got.code, got.body)
			}
		}
	}
}

// parse reads JSON and keeps numbers as they were written.
func parse(raw []byte) (any, error) {
	var out any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(&out)
	return out, err
}

// encode writes JSON.
func encode(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Errorf("encode a mutated object: %w", err))
	}
	return bytes.TrimSpace(out.Bytes())
}

// at returns what is found below v under the keys, or nil.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

func textAt(v any, keys ...string) string {
	s, _ := at(v, keys...).(string)
	return s
}
