package extensions_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
)

var (
	gadgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
	fleets  = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "fleets"}
)

func ownedBy(o metav1.Object, apiVersion, kind string, owner metav1.Object) {
	yes := true
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: &yes}})
}

// family is a custom object that owns another one and a config map; that other one owns
// a config map as well.
func (c *cluster) family(name string) *unstructured.Unstructured {
	c.t.Helper()
	owner := c.create(widgets, "default", object(widgets, "Widget", name, `{}`))
	child := object(gadgets, "Gadget", name, `{}`)
	ownedBy(child, "example.com/v1", "Widget", owner)
	child = c.create(gadgets, "default", child)
	for suffix, o := range map[string]*unstructured.Unstructured{"-of-widget": owner, "-of-gadget": child} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name + suffix}}
		ownedBy(m, "example.com/v1", o.GetKind(), o)
		if _, err := c.Client.CoreV1().ConfigMaps("default").Create(c.t.Context(), m, metav1.CreateOptions{}); err != nil {
			c.t.Fatal(err)
		}
	}
	return owner
}

// left lists what there is of a family.
func (c *cluster) left(ctx context.Context, name string) (out []string) {
	for _, r := range []schema.GroupVersionResource{widgets, gadgets} {
		if _, err := c.dynamic.Resource(r).Namespace("default").Get(ctx, name, metav1.GetOptions{}); err == nil {
			out = append(out, r.Resource)
		}
	}
	for _, suffix := range []string{"-of-widget", "-of-gadget"} {
		if _, err := c.Client.CoreV1().ConfigMaps("default").Get(ctx, name+suffix, metav1.GetOptions{}); err == nil {
			out = append(out, suffix)
		}
	}
	return out
}

func (c *cluster) becomes(name, want string) {
	c.t.Helper()
	c.Eventually("what is left of "+name, func(ctx context.Context) error {
		if got := fmt.Sprint(c.left(ctx, name)); got != want {
			return fmt.Errorf("%s, want %s", got, want)
		}
		return nil
	})
}

// TestOwnersOfCustomKinds deletes families of custom and built-in objects in all ways.
func TestOwnersOfCustomKinds(t *testing.T) {
	c := start(t)
	c.define(definition(t))
	c.define(definition(t, named("example.com", "gadgets", "Gadget")))
	ctx, objects := t.Context(), c.dynamic.Resource(widgets).Namespace("default")
	for policy, want := range map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationBackground: "[]", metav1.DeletePropagationForeground: "[]",
		metav1.DeletePropagationOrphan: "[gadgets -of-widget -of-gadget]",
	} {
		name := map[metav1.DeletionPropagation]string{"Background": "bg", "Foreground": "fg", "Orphan": "or"}[policy]
		c.family(name)
		if err := objects.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
		c.becomes(name, want)
	}
	orphan, err := c.dynamic.Resource(gadgets).Namespace("default").Get(ctx, "or", metav1.GetOptions{})
	if err != nil || len(orphan.GetOwnerReferences()) != 0 {
		t.Errorf("the orphan's owners: %v, %v", orphan, err)
	}

	// The end of a kind is the end of its objects, and of what they own.
	c.family("kind")
	if err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, "gadgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.becomes("kind", "[widgets -of-widget]")
}

// TestOwnerThatIsNotThere has objects made with owners that never were, before and
// after their kind is known.
func TestOwnerThatIsNotThere(t *testing.T) {
	c := start(t)
	ghost := &unstructured.Unstructured{Object: map[string]any{}}
	ghost.SetName("ghost")
	ghost.SetUID("7e7e0000-0000-0000-0000-000000000001")
	add := func(name string) {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		ownedBy(m, "example.com/v1", "Widget", ghost)
		if _, err := c.Client.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(name string) {
		t.Helper()
		c.Eventually(name+" is gone", func(ctx context.Context) error {
			if _, err := c.Client.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	}
	add("before")
	time.Sleep(300 * time.Millisecond) // a deletion that must not happen has no event
	if _, err := c.Client.CoreV1().ConfigMaps("default").Get(t.Context(), "before", metav1.GetOptions{}); err != nil {
		t.Fatalf("what an owner of an unknown kind has was deleted: %v", err)
	}
	c.define(definition(t))
	gone("before")
	add("after")
	gone("after")
}

// TestVersionsOfAnOwner names an owner by a version that is not the preferred one, and
// then has the kind served in the other version alone.
func TestVersionsOfAnOwner(t *testing.T) {
	c := start(t)
	d := definition(t)
	second := *d.Spec.Versions[0].DeepCopy()
	second.Name, second.Storage = "v2", false
	d.Spec.Versions = append(d.Spec.Versions, second)
	c.define(d)
	owner := c.create(widgets, "default", object(widgets, "Widget", "o", `{}`))
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned"}}
	ownedBy(m, "example.com/v1", "Widget", owner)
	maps := c.Client.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	api := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	serve := func(v1, v2 bool) {
		t.Helper()
		// The definition's own controllers write its status meanwhile.
		var now *apiextensionsv1.CustomResourceDefinition
		err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
			now, err = api.Get(t.Context(), d.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			now.Spec.Versions[0].Served, now.Spec.Versions[1].Served = v1, v2
			_, err = api.Update(t.Context(), now, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, served := range []bool{v1, v2} {
			r := widgets
			r.Version = now.Spec.Versions[i].Name
			c.Eventually(fmt.Sprintf("%s is served: %v", r.Version, served), func(ctx context.Context) error {
				if _, err := c.dynamic.Resource(r).List(ctx, metav1.ListOptions{}); (err == nil) != served {
					return fmt.Errorf("the answer is %w", err)
				}
				return nil
			})
		}
	}
	serve(true, false)
	serve(false, true)
	time.Sleep(500 * time.Millisecond) // a deletion that must not happen has no event
	if _, err := maps.Get(t.Context(), "owned", metav1.GetOptions{}); err != nil {
		t.Fatalf("the owner exists, in another version: %v", err)
	}
	serve(true, true)
	if err := c.dynamic.Resource(widgets).Namespace("default").Delete(t.Context(), "o", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("what it owned is gone", func(ctx context.Context) error {
		if _, err := maps.Get(ctx, "owned", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// TestClusterScopedOwner is the way of operators: one object for the cluster owns what
// they make in namespaces.
func TestClusterScopedOwner(t *testing.T) {
	c := start(t)
	c.define(definition(t, named("example.com", "fleets", "Fleet"), clusterScoped, func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Subresources = nil }))
	fleet, err := c.dynamic.Resource(fleets).Create(t.Context(), object(fleets, "Fleet", "all", `{}`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made"}}
	ownedBy(m, "example.com/v1", "Fleet", fleet)
	if _, err := c.Client.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	foreground := metav1.DeletePropagationForeground
	if err := c.dynamic.Resource(fleets).Delete(t.Context(), "all", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("both are gone", func(ctx context.Context) error {
		_, ofFleet := c.dynamic.Resource(fleets).Get(ctx, "all", metav1.GetOptions{})
		_, ofMap := c.Client.CoreV1().ConfigMaps("default").Get(ctx, "made", metav1.GetOptions{})
		if !apierrors.IsNotFound(ofFleet) || !apierrors.IsNotFound(ofMap) {
			return fmt.Errorf("fleet: %w, map: %w", ofFleet, ofMap)
		}
		return nil
	})
}
