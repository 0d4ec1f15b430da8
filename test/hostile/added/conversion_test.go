package added

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// shifting is a kind whose objects are stored as v1 and read as v2 too.
func (c *cluster) shifting(group string) *apiextensionsv1.CustomResourceDefinition {
	version := func(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: storage, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}}}
	}
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "things." + group}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing"},
		// The collector watches the version that calls itself the best; its objects must be converted.
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true), version("v2", false)},
	}}
}

func thing(group, version, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/" + version, "kind": "Thing", "metadata": map[string]any{"name": name, "labels": map[string]any{"a": "b"}}, "spec": map[string]any{"n": int64(1)}}}
}

// converted reads and answers ConversionReviews; lie changes what is answered.
func converted(t *testing.T, w http.ResponseWriter, r *http.Request, lie func(objects []map[string]any) []map[string]any) {
	review := apiextensionsv1.ConversionReview{}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	if err != nil {
		t.Error(err)
		return
	}
	var objects []map[string]any
	for _, raw := range review.Request.Objects {
		o := map[string]any{}
		if err := json.Unmarshal(raw.Raw, &o); err != nil {
			t.Error(err)
			return
		}
		o["apiVersion"] = review.Request.DesiredAPIVersion
		objects = append(objects, o)
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, o := range lie(objects) {
		raw, _ := json.Marshal(o)
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Raw: raw})
	}
	review.Request = nil
	answer(w, review)
}

// conversions are webhooks that answer with something else than they were asked for.
func (c *cluster) conversions(t *testing.T) {
	ctx := t.Context()
	const group = "lies.example.com"
	var lie atomic.Value
	var endless atomic.Bool
	metadata := func(o map[string]any) map[string]any { return o["metadata"].(map[string]any) }
	lie.Store(func(o []map[string]any) []map[string]any { return o })
	c.pod("lies", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if endless.Load() {
			w.Header().Set("Content-Type", "application/json")
			for part := []byte(`{"x":"` + strings.Repeat("x", 1<<20)); ; {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		}
		converted(t, w, r, lie.Load().(func([]map[string]any) []map[string]any))
	}))
	d := c.shifting(group)
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{CABundle: c.keys.CAPEM(), Service: &apiextensionsv1.ServiceReference{Namespace: "default", Name: "lies"}}}}
	if _, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored := c.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}).Namespace("default")
	shown := c.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v2", Resource: "things"}).Namespace("default")
	for _, name := range []string{"a", "b"} {
		c.Eventually("a thing is made", func(ctx context.Context) error {
			_, err := stored.Create(ctx, thing(group, "v1", name), metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	c.Eventually("things are converted", func(ctx context.Context) error {
		list, err := shown.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 2 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
	each := func(change func(o map[string]any)) func([]map[string]any) []map[string]any {
		return func(all []map[string]any) []map[string]any {
			for _, o := range all {
				change(o)
			}
			return all
		}
	}
	for name, f := range map[string]func([]map[string]any) []map[string]any{
		"another UID":       each(func(o map[string]any) { metadata(o)["uid"] = "other" }),
		"another name":      each(func(o map[string]any) { metadata(o)["name"] = "other" }),
		"another namespace": each(func(o map[string]any) { metadata(o)["namespace"] = "kube-system" }),
		"another kind":      each(func(o map[string]any) { o["kind"] = "Secret" }),
		"another group":     each(func(o map[string]any) { o["apiVersion"] = "v1" }),
		"no metadata":       each(func(o map[string]any) { delete(o, "metadata") }),
		"none":              func([]map[string]any) []map[string]any { return nil },
		"one twice":         func(all []map[string]any) []map[string]any { return append(all, all[0]) },
	} {
		lie.Store(f)
		// The cache may hold what was converted before.
		if list, err := shown.List(ctx, metav1.ListOptions{}); err == nil {
			for _, o := range list.Items {
				if o.GetKind() != "Thing" || o.GetNamespace() != "default" || o.GetName() != "a" && o.GetName() != "b" || o.GetUID() == "other" {
					t.Errorf("%s: listed %v", name, o)
				}
			}
		}
		if o, err := shown.Get(ctx, "a", metav1.GetOptions{}); err == nil {
			t.Errorf("%s: got %v", name, o)
		}
	}
	// What it may not decide about stays as it was.
	lie.Store(each(func(o map[string]any) {
		m := metadata(o)
		m["finalizers"], m["ownerReferences"], m["resourceVersion"] = []any{"evil/x"}, []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}}, "1"
		m["deletionTimestamp"], m["generation"] = "2020-01-01T00:00:00Z", int64(99)
	}))
	o, err := shown.Get(ctx, "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(o.GetFinalizers()) > 0 || len(o.GetOwnerReferences()) > 0 || o.GetDeletionTimestamp() != nil || o.GetGeneration() == 99 || o.GetResourceVersion() == "1" {
		t.Errorf("the webhook has changed %v", o.Object["metadata"])
	}
	endless.Store(true)
	if _, err := shown.Get(ctx, "a", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "the answer has more than") {
		t.Errorf("an endless answer: %v", err)
	}
	endless.Store(false)
	lie.Store(each(func(map[string]any) {}))
	c.Eventually("the kind is as it was", func(ctx context.Context) error { _, err := shown.List(ctx, metav1.ListOptions{}); return err })
}

// hanging is a conversion webhook that never answers. Nobody else waits for it.
func (c *cluster) hanging(t *testing.T) {
	ctx := t.Context()
	const group = "hangs.example.com"
	var hang atomic.Bool
	release := make(chan struct{})
	c.pod("hangs", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hang.Load() {
			<-release
			return
		}
		converted(t, w, r, func(all []map[string]any) []map[string]any { return all })
	}))
	d := c.shifting(group)
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{CABundle: c.keys.CAPEM(), Service: &apiextensionsv1.ServiceReference{Namespace: "default", Name: "hangs"}}}}
	if _, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored := c.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}).Namespace("default")
	c.Eventually("a thing is made", func(ctx context.Context) error {
		_, err := stored.Create(ctx, thing(group, "v1", "a"), metav1.CreateOptions{})
		return err
	})
	hang.Store(true)
	defer close(release)
	defer hang.Store(false)
	// Somebody lists them, who has to wait.
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	for range 50 {
		go func() {
			_, _ = c.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v2", Resource: "things"}).List(waiting, metav1.ListOptions{})
		}()
	}
	begin := time.Now()
	owner, err := c.Client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "owner-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "owned-", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}}}
	if owned, err = c.Client.CoreV1().ConfigMaps("default").Create(ctx, owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Client.CoreV1().ConfigMaps("default").Delete(ctx, owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("garbage is collected", func(ctx context.Context) error {
		_, err := c.Client.CoreV1().ConfigMaps("default").Get(ctx, owned.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	took := time.Since(begin)
	t.Logf("garbage was collected after %v", took)
	if took > 20*time.Second {
		t.Errorf("garbage was collected only after %v", took)
	}
	if _, err := stored.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"n":2}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("what needs no conversion: %v", err)
	}
	// A quota is counted, and another kind is made and used.
	other := c.shifting("calm.example.com")
	if _, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	calm := c.dynamic.Resource(schema.GroupVersionResource{Group: "calm.example.com", Version: "v2", Resource: "things"}).Namespace("default")
	c.Eventually("another kind is used", func(ctx context.Context) error {
		_, err := calm.Create(ctx, thing("calm.example.com", "v2", "a"), metav1.CreateOptions{})
		return err
	})
	cancel()
	begin = time.Now()
	c.Restart()
	c.connect()
	t.Logf("the restart took %v", time.Since(begin))
	if took := time.Since(begin); took > 45*time.Second {
		t.Errorf("the start took %v", took)
	}
}
