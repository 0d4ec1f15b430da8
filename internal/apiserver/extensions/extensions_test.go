package extensions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/everynode/everynode/internal/testenv"
)

// cluster is a control plane with clients for added kinds.
type cluster struct {
	*testenv.Env
	t       *testing.T
	crds    crdclient.Interface
	dynamic dynamic.Interface
}

func start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Env: testenv.Start(t), t: t}
	c.connect()
	return c
}

func (c *cluster) connect() {
	c.crds, c.dynamic = crdclient.NewForConfigOrDie(c.Config), dynamic.NewForConfigOrDie(c.Config)
}

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// schemaOf reads a schema from JSON.
func schemaOf(t *testing.T, text string) *apiextensionsv1.CustomResourceValidation {
	t.Helper()
	props := &apiextensionsv1.JSONSchemaProps{}
	if err := json.Unmarshal([]byte(text), props); err != nil {
		t.Fatal(err)
	}
	return &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props}
}

const widgetSchema = `{"type":"object","description":"A widget.","properties":{
  "spec":{"type":"object","properties":{
    "size":{"type":"integer","minimum":1,"default":3,"description":"How big it is."},
    "color":{"type":"string"},"replicas":{"type":"integer"}},
    "x-kubernetes-validations":[{"rule":"!has(self.size) || self.size < 10","message":"too big"}]},
  "status":{"type":"object","properties":{"replicas":{"type":"integer"},"selector":{"type":"string"}}}}}`

// definition is a CustomResourceDefinition of widgets, as change wants it.
func definition(t *testing.T, change ...func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ShortNames: []string{"wd"}},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: schemaOf(t, widgetSchema),
				SelectableFields:         []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}},
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Size", Type: "integer", JSONPath: ".spec.size"}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
				},
			}},
		},
	}
	for _, c := range change {
		c(d)
	}
	return d
}

// named changes a definition to one of another kind.
func named(group, plural, kind string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Name, d.Spec.Group = plural+"."+group, group
		d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind}
	}
}

func clusterScoped(d *apiextensionsv1.CustomResourceDefinition) {
	d.Spec.Scope = apiextensionsv1.ClusterScoped
}

// define makes a kind and waits until it is served.
func (c *cluster) define(d *apiextensionsv1.CustomResourceDefinition) {
	c.t.Helper()
	if _, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Create(c.t.Context(), d, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.Eventually(d.Name+" is established", func(ctx context.Context) error { return c.condition(ctx, d.Name, apiextensionsv1.Established, "True") })
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		r := schema.GroupVersionResource{Group: d.Spec.Group, Version: v.Name, Resource: d.Spec.Names.Plural}
		c.Eventually(d.Name+" is served", func(ctx context.Context) error {
			_, err := c.dynamic.Resource(r).List(ctx, metav1.ListOptions{})
			return err
		})
	}
}

func (c *cluster) condition(ctx context.Context, name string, kind apiextensionsv1.CustomResourceDefinitionConditionType, want apiextensionsv1.ConditionStatus) error {
	d, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range d.Status.Conditions {
		if condition.Type == kind && condition.Status == want {
			return nil
		}
	}
	return fmt.Errorf("its conditions are %v", d.Status.Conditions)
}

// object is a custom object with a spec, given as JSON.
func object(r schema.GroupVersionResource, kind, name, spec string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal([]byte(`{"spec":`+spec+`}`), &o.Object); err != nil {
		panic(err)
	}
	o.SetGroupVersionKind(r.GroupVersion().WithKind(kind))
	o.SetName(name)
	return o
}

func (c *cluster) create(r schema.GroupVersionResource, namespace string, o *unstructured.Unstructured) *unstructured.Unstructured {
	c.t.Helper()
	out, err := c.dynamic.Resource(r).Namespace(namespace).Create(c.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatalf("create %s %s: %v", r.Resource, o.GetName(), err)
	}
	return out
}

func field(o *unstructured.Unstructured, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return v
}

// compilations is how many times the rules of a definition were compiled in this process.
func compilations(t *testing.T) (n uint64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "apiserver_cel_compilation_duration_seconds" {
			n += f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return n
}

// TestRulesOfKindsAreCompiledWithTheirDefinition makes and changes objects: no rule is compiled for one of them.
func TestRulesOfKindsAreCompiledWithTheirDefinition(t *testing.T) {
	c := start(t)
	c.define(definition(t))
	c.create(widgets, "default", object(widgets, "Widget", "first", `{"size":1}`))
	before := compilations(t)
	if before == 0 {
		t.Fatal("no rule was compiled, or the library counts under another name")
	}
	client := c.dynamic.Resource(widgets).Namespace("default")
	for i := range 50 {
		o := c.create(widgets, "default", object(widgets, "Widget", fmt.Sprint("w", i), `{"size":2}`))
		o.SetLabels(map[string]string{"a": "b"})
		_, err := client.Update(t.Context(), o, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if after := compilations(t); after != before {
		t.Errorf("50 objects, each changed once, have rules compiled %d times", after-before)
	}
}

// TestCustomObjects is what people do with kinds of their own.
func TestCustomObjects(t *testing.T) {
	c := start(t)
	c.define(definition(t))
	ctx, client := t.Context(), c.dynamic.Resource(widgets).Namespace("default")

	made := c.create(widgets, "default", object(widgets, "Widget", "a", `{"color":"red","nonsense":true}`))
	if got := fmt.Sprint(field(made, "spec")); got != "map[color:red size:3]" {
		t.Errorf("a default is missing, or an unknown field is kept: %s", got)
	}
	c.create(widgets, "default", object(widgets, "Widget", "b", `{"color":"blue","size":5,"replicas":2}`))
	for spec, want := range map[string]string{
		`{"size":"big"}`: `spec.size: Invalid value: "string": spec.size in body must be of type integer`,
		`{"size":0}`:     "spec.size in body should be greater than or equal to 1",
		`{"size":10}`:    "too big",
	} {
		if _, err := client.Create(ctx, object(widgets, "Widget", "bad", spec), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	if _, err := client.Create(ctx, object(widgets, "Widget", "bad", `{"colour":"red"}`), metav1.CreateOptions{FieldValidation: "Strict"}); err == nil || !strings.Contains(err.Error(), `unknown field "spec.colour"`) {
		t.Errorf("an unknown field: %v", err)
	}

	blue, err := client.List(ctx, metav1.ListOptions{FieldSelector: "spec.color=blue"})
	if err != nil || len(blue.Items) != 1 || blue.Items[0].GetName() != "b" {
		t.Errorf("selected by color: %v, %v", blue, err)
	}
	if _, err := client.List(ctx, metav1.ListOptions{FieldSelector: "spec.size=3"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that is not selectable: %v", err)
	}

	b := object(widgets, "Widget", "b", `{"size":9}`)
	b.Object["status"] = map[string]any{"replicas": int64(2)}
	patch, _ := json.Marshal(b.Object)
	after, err := client.Patch(ctx, "b", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil || fmt.Sprint(field(after, "spec", "size"), field(after, "status", "replicas")) != "5 2" {
		t.Errorf("the status changes the status only: %v, %v", after, err)
	}
	scale, err := client.Get(ctx, "b", metav1.GetOptions{}, "scale")
	if err != nil || scale.GetKind() != "Scale" || field(scale, "spec", "replicas") != int64(2) {
		t.Errorf("scale: %v, %v", scale, err)
	}
	applied := object(widgets, "Widget", "c", `{"size":4}`)
	if _, err := client.Apply(ctx, "c", applied, metav1.ApplyOptions{FieldManager: "one"}); err != nil {
		t.Fatal(err)
	}
	applied = object(widgets, "Widget", "c", `{"size":5}`)
	if _, err := client.Apply(ctx, "c", applied, metav1.ApplyOptions{FieldManager: "two"}); !apierrors.IsConflict(err) {
		t.Errorf("two appliers of one field: %v", err)
	}
	if table := c.raw("/apis/example.com/v1/namespaces/default/widgets", "application/json;as=Table;v=v1;g=meta.k8s.io"); !strings.Contains(table, `"name":"Size"`) {
		t.Errorf("the column is missing in %s", table)
	}
}

// raw reads a path.
func (c *cluster) raw(path, accept string) string {
	c.t.Helper()
	body, err := c.Client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).DoRaw(c.t.Context())
	if err != nil {
		c.t.Fatalf("GET %s: %v", path, err)
	}
	return string(body)
}

const aggregatedList = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// TestKindsComeAndGo looks at all places that tell of kinds.
func TestKindsComeAndGo(t *testing.T) {
	c := start(t)
	places := map[string]struct{ path, accept, sign string }{
		"the list of groups":   {"/apis", "application/json", `"name":"example.com"`},
		"aggregated discovery": {"/apis", aggregatedList, `"name":"example.com"`},
		"OpenAPI v2":           {"/openapi/v2", "application/json", `com.example.v1.Widget"`},
		"OpenAPI v3":           {"/openapi/v3", "application/json", `apis/example.com/v1"`},
		"APIServices":          {"/apis/apiregistration.k8s.io/v1/apiservices", "application/json", `"v1.example.com"`},
	}
	see := func(want bool) {
		t.Helper()
		for name, p := range places {
			c.Eventually(fmt.Sprintf("%s has the kind: %v", name, want), func(context.Context) error {
				if got := strings.Contains(c.raw(p.path, p.accept), p.sign); got != want {
					return fmt.Errorf("%s: %q is there: %v", p.path, p.sign, got)
				}
				return nil
			})
		}
	}
	see(false)
	c.define(definition(t))
	see(true)
	if got := c.raw("/openapi/v3/apis/example.com/v1", "application/json"); !strings.Contains(got, "How big it is.") {
		t.Error("the description of a field is missing, which kubectl explain shows")
	}
	c.create(widgets, "default", object(widgets, "Widget", "kept", `{}`))
	if err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	see(false)
	c.define(definition(t))
	left, err := c.dynamic.Resource(widgets).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 0 {
		t.Errorf("objects of before are there again: %v, %v", left, err)
	}
	c.Restart()
	c.connect()
	see(true)
	c.create(widgets, "default", object(widgets, "Widget", "after-restart", `{}`))
}

// TestKindsThatEndLeaveNothingRunning counts what storages have in the background.
func TestKindsThatEndLeaveNothingRunning(t *testing.T) {
	c := start(t)
	running := func() int {
		stacks := make([]byte, 64<<20)
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "etcd3.(*resourceSizeEstimator).run")
	}
	before := running()
	for i := range 3 {
		name := fmt.Sprintf("things%d", i)
		c.define(definition(t, named("example.com", name, fmt.Sprintf("Thing%d", i))))
		if err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), name+".example.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.Eventually("storages of kinds that ended have ended", func(context.Context) error {
		if now := running(); now > before {
			return fmt.Errorf("%d run, %d did before", now, before)
		}
		return nil
	})
}

// TestBuiltInKindsStay is a definition that would take the place of a built-in kind.
func TestBuiltInKindsStay(t *testing.T) {
	c := start(t)
	api := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := api.Create(t.Context(), definition(t, named("apps", "daemonsets", "DaemonSet")), metav1.CreateOptions{}); err == nil {
		t.Error("a definition in a group without a dot is accepted")
	}
	taken := definition(t, named("rbac.authorization.k8s.io", "roles", "Role"))
	taken.Annotations = map[string]string{"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"}
	if _, err := api.Create(t.Context(), taken, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	unapproved := definition(t, named("things.k8s.io", "things", "Thing"))
	if _, err := api.Create(t.Context(), unapproved, metav1.CreateOptions{}); err == nil {
		t.Error("a definition in a protected group is accepted without approval")
	}
	metrics := definition(t, named("metrics.k8s.io", "nodes", "NodeMetrics"))
	metrics.Annotations, metrics.Spec.Versions[0].Name = taken.Annotations, "v1beta1"
	if _, err := api.Create(t.Context(), metrics, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*apiextensionsv1.CustomResourceDefinition{taken, metrics} {
		c.Eventually("it is looked at", func(ctx context.Context) error {
			return c.condition(ctx, d.Name, apiextensionsv1.NamesAccepted, "True")
		})
	}
	if _, err := c.Client.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "still-a-role"},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if got := c.raw("/apis/metrics.k8s.io/v1beta1", "application/json"); !strings.Contains(got, "PodMetrics") {
		t.Errorf("the metrics are %s", got)
	}
	for _, d := range []string{taken.Name, metrics.Name} {
		if err := api.Delete(t.Context(), d, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.Eventually("it is gone", func(ctx context.Context) error {
			if _, err := api.Get(ctx, d, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	}
	if _, err := c.Client.RbacV1().Roles("default").Get(t.Context(), "still-a-role", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if got := c.raw("/apis", "application/json"); !strings.Contains(got, "rbac.authorization.k8s.io/v1") || !strings.Contains(got, "metrics.k8s.io/v1beta1") {
		t.Errorf("the groups are %s", got)
	}
}

// TestBuiltInVersionsComeFirst is a definition of another version of a group of the server: it
// is there, and clients still go to the server's own.
func TestBuiltInVersionsComeFirst(t *testing.T) {
	c := start(t)
	other := definition(t, named("rbac.authorization.k8s.io", "roles", "Role"))
	other.Annotations = map[string]string{"api-approved.kubernetes.io": "https://example.com/approved"}
	other.Spec.Versions[0].Name = "v2"
	crds := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const group = "rbac.authorization.k8s.io"
	for _, client := range []discovery.DiscoveryInterface{c.Client.Discovery(), c.Client.Discovery().WithLegacy()} {
		c.Eventually("the other version is found", func(context.Context) error {
			groups, err := client.ServerGroups()
			if err != nil {
				return err
			}
			for _, g := range groups.Groups {
				if g.Name != group {
					continue
				}
				if g.PreferredVersion.Version != "v1" {
					t.Fatalf("%T: the preferred version is %s", client, g.PreferredVersion.Version)
				}
				if len(g.Versions) == 2 && g.Versions[0].Version == "v1" {
					return nil
				}
			}
			return fmt.Errorf("the groups are %v", groups.Groups)
		})
	}
}

// TestRightsToCustomKinds is that nobody has any without a role that names them.
func TestRightsToCustomKinds(t *testing.T) {
	c := start(t)
	c.define(definition(t))
	as := func(user string, groups ...string) dynamic.ResourceInterface {
		config := restclient.CopyConfig(c.Config)
		config.Impersonate = restclient.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
		return dynamic.NewForConfigOrDie(config).Resource(widgets).Namespace("default")
	}
	people := map[string]dynamic.ResourceInterface{
		"a node": as("system:node:n1", "system:nodes"), "the scheduler": as("system:kube-scheduler"), "somebody": as("ann"),
		"a daemon": as("system:serviceaccount:default:default", "system:serviceaccounts", "system:serviceaccounts:default"),
	}
	for name, client := range people {
		if _, err := client.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s lists widgets: %v", name, err)
		}
		if _, err := client.Create(t.Context(), object(widgets, "Widget", "x", `{}`), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s makes a widget: %v", name, err)
		}
	}
	// An operator's package adds its kinds to the roles that people have already.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "widgets-view", Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"example.com"}, Resources: []string{"widgets"}}}}
	if _, err := c.Client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "ann"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "ann"}}}
	if _, err := c.Client.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("ann may look at widgets", func(ctx context.Context) error {
		_, err := people["somebody"].List(ctx, metav1.ListOptions{})
		return err
	})
	if _, err := people["somebody"].Create(t.Context(), object(widgets, "Widget", "x", `{}`), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("ann, who may look, makes a widget: %v", err)
	}
}

// TestNamespacesTakeCustomObjectsAlong deletes a namespace with custom objects, one of
// which somebody wants to finish with first.
func TestNamespacesTakeCustomObjectsAlong(t *testing.T) {
	c := start(t)
	if _, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "full"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.define(definition(t))
	c.create(widgets, "full", object(widgets, "Widget", "plain", `{}`))
	held := object(widgets, "Widget", "held", `{}`)
	held.SetFinalizers([]string{"example.com/wait"})
	c.create(widgets, "full", held)
	if err := c.Client.CoreV1().Namespaces().Delete(t.Context(), "full", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	client := c.dynamic.Resource(widgets).Namespace("full")
	c.Eventually("the namespace says what it waits for", func(ctx context.Context) error {
		ns, err := c.Client.CoreV1().Namespaces().Get(ctx, "full", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(ns.Status.Conditions, func(x corev1.NamespaceCondition) bool {
			return x.Status == "True" && strings.Contains(x.Message, "widgets.example.com has 1 resource instances")
		}) {
			return fmt.Errorf("its conditions are %v", ns.Status.Conditions)
		}
		return nil
	})
	if _, err := client.Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the namespace is gone", func(ctx context.Context) error {
		if _, err := c.Client.CoreV1().Namespaces().Get(ctx, "full", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}
