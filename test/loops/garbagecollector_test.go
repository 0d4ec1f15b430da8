package loops

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/testenv"
)

// cascades deletes small families of config maps through a real API server.
// grandparent owns parent owns child; all references block their owner's deletion.
func cascades(t *testing.T, e *testenv.Env) {
	background, foreground, orphan := metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan
	for _, tc := range []struct {
		name   string
		policy *metav1.DeletionPropagation
		gone   []string
		stays  []string
	}{
		{"background", &background, []string{"grandparent", "parent", "child", "friend-of-absent"}, []string{"adopted"}},
		{"foreground", &foreground, []string{"grandparent", "parent", "child"}, []string{"adopted"}},
		{"orphan", &orphan, []string{"grandparent"}, []string{"parent", "child", "adopted"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFamily(t, e, "cascade-"+tc.name)
			grandparent := f.create("grandparent")
			parent := f.create("parent", grandparent)
			f.create("child", parent)
			f.create("adopted", parent, f.create("second-owner"))
			f.create("friend-of-absent", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "never", UID: "7e7e0000-0000-0000-0000-000000000000"}})
			f.delete("grandparent", tc.policy)
			for _, name := range tc.gone {
				f.expectGone(name)
			}
			for _, name := range append(tc.stays, "second-owner") {
				f.expectStays(name)
			}
			if tc.policy == &orphan {
				f.expectOwners("parent")
				f.expectOwners("child", parent.UID)
				return
			}
			f.expectOwners("adopted", f.get("second-owner").UID)
		})
	}
}

// foregroundWaits holds a child with a finalizer of its own: its parent must
// stay until the child is really gone.
func foregroundWaits(t *testing.T, e *testenv.Env) {
	f := newFamily(t, e, "default")
	parent := f.create("parent")
	f.create("child", parent)
	maps := e.Client.CoreV1().ConfigMaps("default")
	hold := []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`)
	if _, err := maps.Patch(t.Context(), "child", types.MergePatchType, hold, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	foreground := metav1.DeletePropagationForeground
	f.delete("parent", &foreground)
	e.Eventually("the child is asked to go", func(context.Context) error {
		if f.get("child").DeletionTimestamp == nil {
			return fmt.Errorf("it is not being deleted")
		}
		return nil
	})
	if got := f.get("parent").Finalizers; len(got) != 1 || got[0] != metav1.FinalizerDeleteDependents {
		t.Errorf("the parent's finalizers are %v while its child exists", got)
	}
	if _, err := maps.Patch(t.Context(), "child", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.expectGone("child")
	f.expectGone("parent")
}

// ownerInAnotherNamespace tells the user of a reference that cannot hold, and collects.
func ownerInAnotherNamespace(t *testing.T, e *testenv.Env) {
	there := newFamily(t, e, "there")
	here := newFamily(t, e, "here")
	here.create("child", there.create("owner"))
	here.expectGone("child")
	there.expectStays("owner")
	e.Eventually("an event tells why", func(ctx context.Context) error {
		events, err := e.Client.CoreV1().Events("here").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Reason == "OwnerRefInvalidNamespace" && event.InvolvedObject.Name == "child" {
				return nil
			}
		}
		return fmt.Errorf("%d events, none of them says it", len(events.Items))
	})
}

// TestNodeOwnsLease collects a namespaced object whose cluster-scoped owner goes.
func TestNodeOwnsNamespacedObject(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t)
	f := newFamily(t, e, "default")
	node, err := e.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
	}}}
	if _, err := e.Client.CoreV1().ConfigMaps("default").Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := e.Client.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.expectGone("owned")
}

// family is a namespace of config maps that own each other.
type family struct {
	t         *testing.T
	env       *testenv.Env
	namespace string
}

func newFamily(t *testing.T, e *testenv.Env, namespace string) *family {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := e.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return &family{t: t, env: e.For(t), namespace: namespace}
}

func (f *family) create(name string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
	f.t.Helper()
	yes := true
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, owner := range owners {
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &yes,
		})
	}
	created, err := f.env.Client.CoreV1().ConfigMaps(f.namespace).Create(f.t.Context(), m, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return created
}

func (f *family) get(name string) *corev1.ConfigMap {
	f.t.Helper()
	m, err := f.env.Client.CoreV1().ConfigMaps(f.namespace).Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

func (f *family) delete(name string, policy *metav1.DeletionPropagation) {
	f.t.Helper()
	if err := f.env.Client.CoreV1().ConfigMaps(f.namespace).Delete(f.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: policy}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *family) expectGone(name string) {
	f.t.Helper()
	f.env.Eventually(name+" is deleted", func(ctx context.Context) error {
		_, err := f.env.Client.CoreV1().ConfigMaps(f.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("it is still there")
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// expectStays checks that an object is there and not on its way out. All that will go
// must have gone before.
func (f *family) expectStays(name string) {
	f.t.Helper()
	if f.get(name).DeletionTimestamp != nil {
		f.t.Errorf("%s is being deleted", name)
	}
}

func (f *family) expectOwners(name string, want ...types.UID) {
	f.t.Helper()
	f.env.Eventually(name+" has its owners", func(context.Context) error {
		var got []types.UID
		for _, ref := range f.get(name).OwnerReferences {
			got = append(got, ref.UID)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("they are %v, want %v", got, want)
		}
		return nil
	})
}
