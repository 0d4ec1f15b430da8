package extensions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// TestWatchCustomObjects follows objects of a cluster-wide kind: all of them, and those with a field.
func TestWatchCustomObjects(t *testing.T) {
	c := start(t)
	c.define(definition(t, clusterScoped, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions[0].SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}, {JSONPath: ".spec.size"}}
	}))
	ctx, client := t.Context(), c.dynamic.Resource(widgets)
	var streams []watch.Interface
	for _, selector := range []string{"", "spec.color=blue", "spec.color=blue,spec.size=5"} {
		stream, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Stop()
		streams = append(streams, stream)
	}
	for name, spec := range map[string]string{"red": `{"color":"red","size":5}`, "blue": `{"color":"blue","size":5}`, "small": `{"color":"blue","size":2}`} {
		if _, err := client.Create(ctx, object(widgets, "Widget", name, spec), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for selector, want := range map[string]int{"spec.color=blue": 2, "spec.color!=blue": 1, "spec.color=blue,spec.size=5": 1, "spec.color=green": 0} {
		if list, err := client.List(ctx, metav1.ListOptions{FieldSelector: selector}); err != nil || len(list.Items) != want {
			t.Errorf("%d are listed with %s, %v", len(list.Items), selector, err)
		}
	}
	if _, err := client.Patch(ctx, "blue", types.MergePatchType, []byte(`{"spec":{"color":"red"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.color=blue"}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(ctx, "red", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// What no longer has the field is gone for who asked for it.
	for i, want := range []string{"small+ red+ blue+ blue~ small- red-", "small+ blue+ blue- small-", "blue+ blue-"} {
		got := map[string]string{}
		for range strings.Fields(want) {
			e := <-streams[i].ResultChan()
			name := e.Object.(metav1.Object).GetName()
			got[name] += map[watch.EventType]string{watch.Added: "+", watch.Modified: "~", watch.Deleted: "-"}[e.Type]
		}
		for _, event := range strings.Fields(want) {
			name := strings.TrimRight(event, "+~-")
			if steps := strings.Count(want, name+"+") + strings.Count(want, name+"~") + strings.Count(want, name+"-"); len(got[name]) != steps || !strings.HasPrefix(got[name], "+") {
				t.Errorf("watch %d tells of %s %q; want %s", i, name, got[name], want)
			}
		}
	}
}

// TestStrictnessForCustomKinds sends objects with unknown and double fields, as who wants them refused, told, and dropped.
func TestStrictnessForCustomKinds(t *testing.T) {
	c := start(t)
	const keeps = `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`
	const embeds = `{"type":"object","properties":{"spec":{"type":"object","properties":{"known":{"type":"string"},"template":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{
		"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}}`
	c.define(definition(t, named("open.example.com", "opens", "Open"), withSchema(t, keeps, "v1")))
	c.define(definition(t, named("embeds.example.com", "embeds", "Embed"), withSchema(t, embeds, "v1")))
	c.define(definition(t, named("closed.example.com", "closeds", "Closed"), withSchema(t, widgetSchema, "v1")))
	send := func(group, plural, kind, name, rest string, apply bool) error {
		r := c.Client.Discovery().RESTClient().Post().AbsPath("/apis", group, "v1", "namespaces/default", plural)
		head := `{"apiVersion":"` + group + `/v1","kind":"` + kind + `",`
		if apply {
			r = c.Client.Discovery().RESTClient().Patch(types.ApplyPatchType).AbsPath("/apis", group, "v1", "namespaces/default", plural, name).Param("fieldManager", "t").Param("force", "true")
		}
		return r.Param("fieldValidation", "Strict").SetHeader("Content-Type", map[bool]string{true: "application/apply-patch+yaml", false: "application/json"}[apply]).
			Body([]byte(head + strings.ReplaceAll(rest, "NAME", name))).Do(t.Context()).Error()
	}
	const md = `"metadata":{"name":"NAME"},`
	for name, x := range map[string]struct{ group, plural, kind, rest, want string }{
		"open-unknown":   {"open.example.com", "opens", "Open", md + `"spec":{"any":{"thing":1}}}`, ""},
		"open-double":    {"open.example.com", "opens", "Open", md + `"spec":{"a":"1","a":"2"}}`, `duplicate field "spec.a"`},
		"closed-good":    {"closed.example.com", "closeds", "Closed", md + `"spec":{"size":2}}`, ""},
		"closed-unknown": {"closed.example.com", "closeds", "Closed", md + `"spec":{"size":2,"length":3}}`, "spec.length"},
		"closed-double":  {"closed.example.com", "closeds", "Closed", md + `"spec":{"size":2,"size":3}}`, `duplicate field "spec.size"`},
		"root-metadata":  {"embeds.example.com", "embeds", "Embed", `"metadata":{"name":"NAME","unknown":"x"},"spec":{"known":"k"}}`, "metadata.unknown"},
		"inner-metadata": {"embeds.example.com", "embeds", "Embed", md + `"spec":{"template":{"apiVersion":"v1","kind":"X","metadata":{"name":"i","sub":"x"},"spec":{"any":1}}}}`, "spec.template.metadata.sub"},
		"inner-good":     {"embeds.example.com", "embeds", "Embed", md + `"spec":{"template":{"apiVersion":"v1","kind":"X","metadata":{"name":"i"},"spec":{"any":1}}}}`, ""},
	} {
		for _, apply := range []bool{false, true} {
			if apply && strings.HasSuffix(name, "-double") {
				x.want = "already set in map" // the reader of YAML says so
			}
			err := send(x.group, x.plural, x.kind, fmt.Sprint(name, "-", map[bool]string{true: "applied", false: "made"}[apply]), x.rest, apply)
			if (err == nil) != (x.want == "") || x.want != "" && !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s, applied %v: %v, want %q", name, apply, err, x.want)
			}
		}
	}
}

// TestDefaultsOfStoredObjects adds a default to a kind: objects of before have it too, in whatever way they are read.
func TestDefaultsOfStoredObjects(t *testing.T) {
	c := start(t)
	const before = `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string","default":"B"}}}`
	const after = `{"type":"object","properties":{"a":{"type":"string","default":"A"},"b":{"type":"string"}}}`
	c.define(definition(t, withSchema(t, before, "v1")))
	c.create(widgets, "default", object(widgets, "Widget", "old", `{}`))
	definitions := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	c.Eventually("the definition is changed", func(ctx context.Context) error {
		d, err := definitions.Get(ctx, "widgets.example.com", metav1.GetOptions{})
		if err == nil {
			d.Spec.Versions[0].Schema = schemaOf(t, after)
			_, err = definitions.Update(ctx, d, metav1.UpdateOptions{})
		}
		return err
	})
	client := c.dynamic.Resource(widgets).Namespace("default")
	c.Eventually("what was stored before has the new default, and keeps the old one", func(ctx context.Context) error {
		got, err := client.Get(ctx, "old", metav1.GetOptions{})
		if err == nil && (field(got, "a") != "A" || field(got, "b") != "B") {
			err = fmt.Errorf("it is %v", got.Object)
		}
		return err
	})
	made := c.create(widgets, "default", object(widgets, "Widget", "new", `{}`))
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 || field(&list.Items[0], "a") != "A" || field(&list.Items[1], "a") != "A" || field(made, "b") != nil {
		t.Errorf("the new one is %v, all are %v, %v", made.Object, list, err)
	}
}

// TestStatusOfDefinitions reads and writes the status of a definition, which keeps what the server does not write itself; and lists and
// deletes definitions by a label.
func TestStatusOfDefinitions(t *testing.T) {
	c := start(t)
	labelled := func(d *apiextensionsv1.CustomResourceDefinition) { d.Labels = map[string]string{"of": "us"} }
	for i := range 4 {
		c.define(definition(t, named("g.example.com", fmt.Sprintf("k%ds", i), fmt.Sprintf("K%d", i)), labelled))
	}
	ctx, api := t.Context(), c.crds.ApiextensionsV1().CustomResourceDefinitions()
	const name = "k0s.g.example.com"
	c.Eventually("its status is updated", func(ctx context.Context) error {
		d, err := api.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			d.Status.Conditions = append(d.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{Type: "StatusUpdate", Status: "True", Reason: "Test", Message: "m"})
			_, err = api.UpdateStatus(ctx, d, metav1.UpdateOptions{})
		}
		return err
	})
	if _, err := api.Patch(ctx, name, types.JSONPatchType, []byte(`[{"op":"add","path":"/status/conditions/-","value":{"type":"StatusPatched","status":"True","reason":"Test","message":"m"}}]`), metav1.PatchOptions{}, "status"); err != nil {
		t.Error(err)
	}
	for _, kind := range []apiextensionsv1.CustomResourceDefinitionConditionType{"StatusUpdate", "StatusPatched", apiextensionsv1.Established, apiextensionsv1.NamesAccepted} {
		if err := c.condition(ctx, name, kind, "True"); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	got := apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal([]byte(c.raw("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+name+"/status", "application/json")), &got); err != nil || len(got.Status.Conditions) < 4 {
		t.Errorf("its status is read as %v, %v", got.Status, err)
	}
	if list, err := api.List(ctx, metav1.ListOptions{LabelSelector: "of=us"}); err != nil || len(list.Items) != 4 {
		t.Errorf("%d are listed, %v", len(list.Items), err)
	}
	if err := api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "of=us"}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("all are gone, with what they served", func(ctx context.Context) error {
		list, err := api.List(ctx, metav1.ListOptions{LabelSelector: "of=us"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are there", len(list.Items))
		}
		if err != nil {
			return err
		}
		if _, err := c.dynamic.Resource(schema.GroupVersionResource{Group: "g.example.com", Version: "v1", Resource: "k3s"}).List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the kind is served: %w", err)
		}
		return nil
	})
}

// TestVersionsComeAndGo: a version that is not served any more is not listed, whether or not the definition still has it, and its
// APIService goes; the others stay.
func TestVersionsComeAndGo(t *testing.T) {
	c := start(t)
	c.define(definition(t, withSchema(t, widgetSchema, "v1", "v2", "v3")))
	listed := func(want string) {
		t.Helper()
		c.Eventually("served are "+want, func(context.Context) error {
			var groups metav1.APIGroupList
			if err := json.Unmarshal([]byte(c.raw("/apis", "application/json")), &groups); err != nil {
				return err
			}
			var got []string
			for _, g := range groups.Groups {
				for _, v := range g.Versions {
					if g.Name == "example.com" {
						got = append(got, v.Version)
					}
				}
			}
			services := c.raw("/apis/apiregistration.k8s.io/v1/apiservices", "application/json")
			for _, v := range []string{"v1", "v2", "v3"} {
				if strings.Contains(services, `"name":"`+v+`.example.com"`) != strings.Contains(want, v) {
					return fmt.Errorf("the APIService of %s is there, or is not", v)
				}
			}
			slices.Sort(got)
			if text := strings.Join(got, " "); text != want {
				return fmt.Errorf("it is %q", text)
			}
			return nil
		})
	}
	listed("v1 v2 v3")
	api := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	for _, step := range []struct{ patch, want string }{
		{`[{"op":"replace","path":"/spec/versions/1/served","value":false}]`, "v1 v3"},
		{`[{"op":"remove","path":"/spec/versions/2"}]`, "v1"},
		{`[{"op":"replace","path":"/spec/versions/1/served","value":true}]`, "v1 v2"},
	} {
		if _, err := api.Patch(t.Context(), "widgets.example.com", types.JSONPatchType, []byte(step.patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		listed(step.want)
	}
}
