package extensions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// withSchema gives the definition versions with that schema; the first is stored.
func withSchema(t *testing.T, text string, versions ...string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions = nil
		for i, v := range versions {
			d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: v, Served: true, Storage: i == 0, Schema: schemaOf(t, text)})
		}
	}
}

// published waits until both documents have a definition that is as wanted, in the group and version.
func (c *cluster) published(group, version, kind string, want func(v2, v3 map[string]any) bool) {
	c.t.Helper()
	parts := strings.Split(group, ".")
	slices.Reverse(parts)
	name := strings.Join(parts, ".") + "." + version + "." + kind
	c.Eventually(name+" is published as wanted", func(context.Context) error {
		var old struct{ Definitions map[string]map[string]any }
		if err := json.Unmarshal([]byte(c.raw("/openapi/v2", "application/json")), &old); err != nil {
			return err
		}
		var now struct {
			Components struct{ Schemas map[string]map[string]any }
		}
		path := "apis/" + group + "/" + version
		if index := c.raw("/openapi/v3", "application/json"); strings.Contains(index, `"`+path+`"`) {
			if err := json.Unmarshal([]byte(c.raw("/openapi/v3/"+path, "application/json")), &now); err != nil {
				return err
			}
		}
		if v2, v3 := old.Definitions[name], now.Components.Schemas[name]; !want(v2, v3) {
			return fmt.Errorf("v2: %v; v3: %v", v2, v3)
		}
		return nil
	})
}

func present(v2, v3 map[string]any) bool { return v2 != nil && v3 != nil }

// absent asks the older document only: the newer one of the library, a kube-apiserver's too, keeps a version until its definition goes.
func absent(v2, _ map[string]any) bool { return v2 == nil }

// within asks for a text in both definitions.
func within(texts ...string) func(v2, v3 map[string]any) bool {
	return func(v2, v3 map[string]any) bool {
		for _, d := range []map[string]any{v2, v3} {
			text, _ := json.Marshal(d)
			if slices.ContainsFunc(texts, func(x string) bool { return !strings.Contains(string(text), x) }) {
				return false
			}
		}
		return true
	}
}

// TestPublishedSchemas looks at what the server says of kinds with schemas of every sort, and of versions that come, change their
// names and go.
func TestPublishedSchemas(t *testing.T) {
	c := start(t)
	const keeps = `{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"spec":{"type":"object","description":"What is wanted."}}}`
	const embeds = `{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}`
	c.define(definition(t, named("checked.example.com", "as", "Checked")))
	c.define(definition(t, named("bare.example.com", "bs", "Bare"), withSchema(t, `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, "v1")))
	c.define(definition(t, named("roots.example.com", "cs", "Root"), withSchema(t, keeps, "v1")))
	c.define(definition(t, named("inner.example.com", "ds", "Inner"), withSchema(t, embeds, "v1")))
	// Two kinds of a group and version, one group in two versions.
	c.define(definition(t, named("many.example.com", "es", "First"), withSchema(t, widgetSchema, "v1")))
	c.define(definition(t, named("many.example.com", "fs", "Second"), withSchema(t, widgetSchema, "v1")))
	c.define(definition(t, named("turns.example.com", "gs", "Turn"), withSchema(t, widgetSchema, "v2", "v3")))

	c.published("checked.example.com", "v1", "Checked", within("A widget.", "How big it is.", `"minimum":1`, `"x-kubernetes-group-version-kind":[{"group":"checked.example.com","kind":"Checked","version":"v1"}]`))
	c.published("bare.example.com", "v1", "Bare", present)
	// The older document cannot say that more is kept than it names, so it names nothing there.
	c.published("roots.example.com", "v1", "Root", func(v2, v3 map[string]any) bool {
		return present(v2, v3) && v2["properties"] == nil && within(`"x-kubernetes-preserve-unknown-fields":true`, "What is wanted.")(v3, v3)
	})
	c.published("inner.example.com", "v1", "Inner", func(v2, v3 map[string]any) bool {
		return within(`"spec":{`)(v2, v3) && within(`"x-kubernetes-embedded-resource":true`, `"x-kubernetes-preserve-unknown-fields":true`)(v3, v3)
	})
	for _, kind := range []string{"First", "Second"} {
		c.published("many.example.com", "v1", kind, present)
	}
	for _, version := range []string{"v2", "v3"} {
		c.published("turns.example.com", version, "Turn", within("How big it is."))
	}

	edit := func(change func(*apiextensionsv1.CustomResourceDefinition)) {
		t.Helper()
		c.Eventually("the definition is changed", func(ctx context.Context) error {
			d, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, "gs.turns.example.com", metav1.GetOptions{})
			if err == nil {
				change(d)
				_, err = c.crds.ApiextensionsV1().CustomResourceDefinitions().Update(ctx, d, metav1.UpdateOptions{})
			}
			return err
		})
	}
	edit(func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[1].Name = "v4" })
	c.published("turns.example.com", "v4", "Turn", within("How big it is."))
	c.published("turns.example.com", "v3", "Turn", absent)
	c.published("turns.example.com", "v2", "Turn", present)
	edit(func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[1].Served = false })
	c.published("turns.example.com", "v4", "Turn", absent)
	c.published("turns.example.com", "v2", "Turn", present)
	c.published("many.example.com", "v1", "Second", present)
}

// TestDiscoveryOfKinds reads discovery in each of its forms, before and after a definition.
func TestDiscoveryOfKinds(t *testing.T) {
	c := start(t)
	forms := map[string]string{
		aggregatedList:                       "apidiscovery.k8s.io/v2",
		aggregatedList + ",application/json": "apidiscovery.k8s.io/v2",
		"application/json":                   "v1",
	}
	for accept, want := range forms {
		for _, path := range []string{"/api", "/apis"} {
			if got := c.raw(path, accept); !strings.Contains(got, `"apiVersion":"`+want+`"`) && !(want == "v1" && !strings.Contains(got, "apidiscovery")) {
				t.Errorf("%s as %s is %.200s, want %s", path, accept, got, want)
			}
		}
	}
	c.define(definition(t, withSchema(t, widgetSchema, "v1", "v2beta1"), func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
		d.Spec.Names.Categories = []string{"all"}
	}))
	c.Eventually("the kind is in the aggregated documents", func(context.Context) error {
		for accept := range forms {
			if !strings.Contains(accept, "apidiscovery") {
				continue
			}
			var list apidiscoveryv2.APIGroupDiscoveryList
			if err := json.Unmarshal([]byte(c.raw("/apis", accept)), &list); err != nil {
				return err
			}
			if text, err := versionsOf(list, "example.com"); err != nil || text != "v1:widgets/Widget+status v2beta1:widgets/Widget" {
				return fmt.Errorf("as %s: %s, %w", accept, text, err)
			}
		}
		return nil
	})

	// Each group names a version that is preferred and served, each version what is in it; both ways of asking tell the same.
	groups, byVersion, failed, err := c.Client.Discovery().(*discovery.DiscoveryClient).GroupsAndMaybeResources()
	if err != nil || len(failed) != 0 || byVersion == nil {
		t.Fatalf("aggregated discovery: %v, %v", failed, err)
	}
	definitions := false
	for _, g := range groups.Groups {
		if g.PreferredVersion.GroupVersion == "" || !slices.Contains(g.Versions, g.PreferredVersion) {
			t.Errorf("group %q prefers %v of %v", g.Name, g.PreferredVersion, g.Versions)
		}
		for _, v := range g.Versions {
			gv, err := schema.ParseGroupVersion(v.GroupVersion)
			if err != nil {
				t.Fatal(err)
			}
			alone, err := c.Client.Discovery().ServerResourcesForGroupVersion(v.GroupVersion)
			if err != nil || alone.GroupVersion != v.GroupVersion || byVersion[gv] == nil || len(alone.APIResources) != len(byVersion[gv].APIResources) {
				t.Errorf("%s: alone %v, with the others %v, %v", v.GroupVersion, alone, byVersion[gv], err)
				continue
			}
			definitions = definitions || v.GroupVersion == "apiextensions.k8s.io/v1" && slices.ContainsFunc(alone.APIResources, func(r metav1.APIResource) bool { return r.Name == "customresourcedefinitions" })
		}
	}
	if !definitions {
		t.Error("definitions themselves are not to be found")
	}
}

// versionsOf tells a group's versions, with their resources and their kinds and parts.
func versionsOf(list apidiscoveryv2.APIGroupDiscoveryList, group string) (string, error) {
	for _, g := range list.Items {
		if g.Name != group {
			continue
		}
		var out []string
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				text := v.Version + ":" + r.Resource + "/" + r.ResponseKind.Kind
				for _, sub := range r.Subresources {
					text += "+" + sub.Subresource
				}
				if len(r.Verbs) != 8 || r.Scope != apidiscoveryv2.ScopeNamespace {
					return text, fmt.Errorf("it is %+v", r)
				}
				out = append(out, text)
			}
		}
		return strings.Join(out, " "), nil
	}
	return "", fmt.Errorf("there is no group %s", group)
}
