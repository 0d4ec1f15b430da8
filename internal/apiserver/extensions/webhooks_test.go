package extensions_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// asked is a server that is sent objects of one type and answers with them.
func asked[T any](t *testing.T, reply func(path string, review *T)) (url string, authority []byte) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := new(T)
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			t.Error(err)
			return
		}
		reply(r.URL.Path, review)
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// admit answers about custom objects: at /deny it refuses those that are marked, at /change it adds two fields.
func admit(path string, review *admissionv1.AdmissionReview) {
	q := review.Request
	review.Response = &admissionv1.AdmissionResponse{UID: q.UID, Allowed: true}
	switch path {
	case "/deny":
		// What is deleted is known by what it was.
		if strings.Contains(string(q.Object.Raw)+string(q.OldObject.Raw), `"refuse":"`+string(q.Operation)+`"`) {
			review.Response.Allowed, review.Response.Result = false, &metav1.Status{Message: "no " + string(q.Operation)}
		}
	case "/change":
		review.Response.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
		review.Response.Patch = []byte(`[{"op":"add","path":"/spec/color","value":"` + q.Kind.Version + `"},{"op":"add","path":"/spec/unknown","value":"dropped"}]`)
	}
}

func rule(group, resource string, operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{Operations: operations,
		Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}}}}
}

// denies has a webhook asked, and waits until it is.
func (c *cluster) denies(name string, client admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations) {
	c.t.Helper()
	client.URL = ptr.To(*client.URL + "/deny")
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: name + ".example.com", SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, ClientConfig: client, Rules: rules}}}
	if _, err := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(c.t.Context(), config, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// TestWebhooksForCustomKinds has webhooks refuse custom objects and definitions, and change objects, whichever version is stored; what
// they add and the schema does not know is dropped.
func TestWebhooksForCustomKinds(t *testing.T) {
	c := start(t)
	url, authority := asked(t, admit)
	hook := admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority}
	c.define(definition(t, withSchema(t, widgetSchema, "v1", "v2")))
	c.denies("objects", hook, rule("example.com", "widgets", "CREATE", "UPDATE", "DELETE"))
	c.denies("definitions", hook, rule("apiextensions.k8s.io", "customresourcedefinitions", "CREATE"))
	ctx, client := t.Context(), c.dynamic.Resource(widgets).Namespace("default")
	marked := func(name, operation string) *unstructured.Unstructured {
		o := object(widgets, "Widget", name, `{}`)
		o.SetLabels(map[string]string{"refuse": operation})
		return o
	}
	refused := func(what string, err error, operation string) {
		t.Helper()
		if !strings.Contains(fmt.Sprint(err), "denied the request: no "+operation) {
			t.Errorf("%s: %v", what, err)
		}
	}
	c.Eventually("the creation is refused", func(ctx context.Context) error {
		_, err := client.Create(ctx, marked("a", "CREATE"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), `admission webhook "objects.example.com" denied the request: no CREATE`) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	c.create(widgets, "default", marked("b", "UPDATE"))
	_, err := client.Patch(ctx, "b", types.MergePatchType, []byte(`{"spec":{"size":4}}`), metav1.PatchOptions{})
	refused("an update", err, "UPDATE")
	c.create(widgets, "default", marked("c", "DELETE"))
	refused("a deletion", client.Delete(ctx, "c", metav1.DeleteOptions{}), "DELETE")
	if _, err := client.Get(ctx, "c", metav1.GetOptions{}); err != nil {
		t.Errorf("it went in spite of that: %v", err)
	}
	if _, err := client.Patch(ctx, "c", types.MergePatchType, []byte(`{"metadata":{"labels":{"refuse":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
		t.Errorf("it may go now: %v", err)
	}
	unwanted := definition(t, named("x.example.com", "xs", "X"))
	unwanted.Labels = map[string]string{"refuse": "CREATE"}
	c.Eventually("a definition is refused", func(ctx context.Context) error {
		_, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, unwanted, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), `admission webhook "definitions.example.com" denied the request: no CREATE`) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	c.changes(hook)
}

// changes has a webhook change objects, before and after another version is stored.
func (c *cluster) changes(hook admissionregistrationv1.WebhookClientConfig) {
	c.t.Helper()
	t, ctx := c.t, c.t.Context()
	hook.URL = ptr.To(*hook.URL + "/change")
	config := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "change"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
		Name: "change.example.com", SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, ClientConfig: hook,
		Rules: rule("example.com", "widgets", "CREATE", "UPDATE")}}}
	if _, err := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := func(version string) schema.GroupVersionResource { return widgets.GroupResource().WithVersion(version) }
	changed := func(what, version string) {
		t.Helper()
		n := 0
		c.Eventually(what, func(ctx context.Context) error {
			n++
			o := object(client(version), "Widget", fmt.Sprintf("%s-%d", strings.ReplaceAll(what, " ", "-"), n), `{"size":2}`)
			made, err := c.dynamic.Resource(client(version)).Namespace("default").Create(ctx, o, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if got := fmt.Sprint(field(made, "spec")); got != "map[color:"+version+" size:2]" {
				return fmt.Errorf("it is %s", got)
			}
			return nil
		})
	}
	changed("changed as it is stored", "v1")
	changed("changed in another version", "v2")
	c.store(1)
	changed("changed when another version is stored", "v1")
	changed("changed in the version now stored", "v2")
	got, err := c.dynamic.Resource(client("v1")).Namespace("default").Patch(ctx, "b", types.MergePatchType, []byte(`{"metadata":{"labels":{"refuse":null}}}`), metav1.PatchOptions{})
	if err == nil || !strings.Contains(err.Error(), "no UPDATE") {
		// The mark of before is in the old object still.
		t.Errorf("an update of a marked object: %v, %v", got, err)
	}
}

// store has widgets stored in one of their versions.
func (c *cluster) store(version int) {
	c.t.Helper()
	c.Eventually("another version is stored", func(ctx context.Context) error {
		d, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, "widgets.example.com", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range d.Spec.Versions {
			d.Spec.Versions[i].Storage = i == version
		}
		_, err = c.crds.ApiextensionsV1().CustomResourceDefinitions().Update(ctx, d, metav1.UpdateOptions{})
		return err
	})
}

// TestListOfSeveralVersions lists objects that were stored in different versions: each answer has them all in the version that is
// asked for, converted by the webhook.
func TestListOfSeveralVersions(t *testing.T) {
	c := start(t)
	url, authority := asked(t, func(_ string, review *apiextensionsv1.ConversionReview) {
		review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			from, to := `"size"`, `"length"`
			if strings.HasSuffix(review.Request.DesiredAPIVersion, "/v1") {
				from, to = to, from
			}
			o := map[string]any{}
			if err := json.Unmarshal([]byte(strings.ReplaceAll(string(raw.Raw), from, to)), &o); err != nil {
				t.Error(err)
			}
			o["apiVersion"] = review.Request.DesiredAPIVersion
			text, _ := json.Marshal(o)
			review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Raw: text})
		}
	})
	c.define(definition(t, withSchema(t, `{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"}}}}}`, "v1", "v2"), func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions[1].Schema = schemaOf(t, `{"type":"object","properties":{"spec":{"type":"object","properties":{"length":{"type":"integer"}}}}}`)
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: authority}}}
	}))
	v2 := widgets.GroupResource().WithVersion("v2")
	c.create(widgets, "default", object(widgets, "Widget", "one", `{"size":1}`))
	c.create(v2, "default", object(v2, "Widget", "two", `{"length":2}`))
	c.store(1)
	n := 0
	c.Eventually("an object is stored in the other version", func(ctx context.Context) error {
		n++
		name := fmt.Sprintf("three-%d", n)
		if _, err := c.dynamic.Resource(v2).Namespace("default").Create(ctx, object(v2, "Widget", name, `{"length":3}`), metav1.CreateOptions{}); err != nil {
			return err
		}
		if d, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, "widgets.example.com", metav1.GetOptions{}); err != nil || len(d.Status.StoredVersions) != 2 {
			return fmt.Errorf("stored are %v, %w", d.Status.StoredVersions, err)
		}
		return nil
	})
	for version, name := range map[string]string{"v1": "size", "v2": "length"} {
		list, err := c.dynamic.Resource(widgets.GroupResource().WithVersion(version)).Namespace("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 2+n {
			t.Fatalf("%d are listed in %s: %v", len(list.Items), version, err)
		}
		for i := range list.Items {
			if o := &list.Items[i]; o.GetAPIVersion() != "example.com/"+version || field(o, "spec", name) == nil {
				t.Errorf("listed in %s: %v", version, o.Object)
			}
		}
	}
}
