package kinds

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
)

// deviceKinds: the kinds of resource.k8s.io are created, read, watched, changed, and deleted one by one and together.
func deviceKinds(t *testing.T, c cluster) {
	for _, kind := range []struct {
		resource, name, spec string
		namespaced           bool
		// change is a good change of the specification, empty where none is.
		change string
	}{
		{"deviceclasses", "DeviceClass", `{"selectors":[{"cel":{"expression":"device.driver == \"d.example.com\""}}]}`, false, `{"spec":{"selectors":[]}}`},
		{"resourceclaims", "ResourceClaim", `{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}`, true, ""},
		{"resourceclaimtemplates", "ResourceClaimTemplate", `{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}}`, true, ""},
		{"resourceslices", "ResourceSlice", `{"driver":"d.example.com","nodeName":"n","pool":{"name":"n","resourceSliceCount":1}}`, false, `{"spec":{"pool":{"generation":2}}}`},
	} {
		t.Run(kind.name, func(t *testing.T) {
			var client dynamic.ResourceInterface
			all := must(dynamic.NewForConfig(c.Config))(t).Resource(resourcev1.SchemeGroupVersion.WithResource(kind.resource))
			if client = all; kind.namespaced {
				client = all.Namespace(c.namespace)
			}
			object := func(name string) *unstructured.Unstructured {
				u := &unstructured.Unstructured{}
				text := fmt.Sprintf(`{"apiVersion":"resource.k8s.io/v1","kind":%q,"metadata":{"name":%q,"labels":{"crud":"yes"}},"spec":%s}`, kind.name, name, kind.spec)
				if err := u.UnmarshalJSON([]byte(text)); err != nil {
					t.Fatal(err)
				}
				return u
			}
			for _, step := range []func(*testing.T, dynamic.ResourceInterface, func(string) *unstructured.Unstructured, string){created, read, changed, collected} {
				step(t, client, object, kind.change)
			}
		})
	}
	t.Run("a claim's parts", func(t *testing.T) { claimParts(t, c) })
	t.Run("a slice's fields", func(t *testing.T) { sliceFields(t, c) })
	t.Run("a quota", func(t *testing.T) { deviceQuota(t, c) })
	t.Run("administration", func(t *testing.T) { administration(t, c) })
}

// created makes two objects while somebody watches, and reads them in each way.
func created(t *testing.T, client dynamic.ResourceInterface, object func(string) *unstructured.Unstructured, _ string) {
	seen := must(client.Watch(t.Context(), metav1.ListOptions{LabelSelector: "crud=yes"}))(t)
	defer seen.Stop()
	for _, name := range []string{"first", "second"} {
		made := must(client.Create(t.Context(), object(name), metav1.CreateOptions{}))(t)
		if made.GetUID() == "" || made.GetResourceVersion() == "" {
			t.Errorf("%s has no identity: %v", name, made.Object["metadata"])
		}
		if e := <-seen.ResultChan(); e.Type != watch.Added || e.Object.(*unstructured.Unstructured).GetName() != name {
			t.Errorf("the watch shows %s %v, want that %s was added", e.Type, e.Object, name)
		}
	}
	_, err := client.Create(t.Context(), object("first"), metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonAlreadyExists, "already exists")
	_, err = client.Get(t.Context(), "third", metav1.GetOptions{})
	refused(t, err, metav1.StatusReasonNotFound, "not found")
}

func read(t *testing.T, client dynamic.ResourceInterface, object func(string) *unstructured.Unstructured, _ string) {
	if got := must(client.Get(t.Context(), "first", metav1.GetOptions{}))(t); got.GetKind() != object("first").GetKind() {
		t.Errorf("got a %s", got.GetKind())
	}
	if list := must(client.List(t.Context(), metav1.ListOptions{LabelSelector: "crud=yes"}))(t); len(list.Items) != 2 {
		t.Errorf("%d are listed, want 2", len(list.Items))
	}
	if list := must(client.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=second"}))(t); len(list.Items) != 1 {
		t.Errorf("%d have the name of one", len(list.Items))
	}
}

// changed patches and replaces metadata, which always may change, and the specification, which may not of all kinds.
func changed(t *testing.T, client dynamic.ResourceInterface, _ func(string) *unstructured.Unstructured, good string) {
	patched := must(client.Patch(t.Context(), "first", types.MergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{}))(t)
	patched.SetAnnotations(map[string]string{"updated": "yes"})
	updated := must(client.Update(t.Context(), patched, metav1.UpdateOptions{}))(t)
	if updated.GetLabels()["patched"] != "yes" || updated.GetAnnotations()["updated"] != "yes" {
		t.Errorf("metadata: %v", updated.Object["metadata"])
	}
	patched.SetAnnotations(map[string]string{"updated": "late"})
	_, err := client.Update(t.Context(), patched, metav1.UpdateOptions{})
	refused(t, err, metav1.StatusReasonConflict, "the object has been modified")
	applied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "resource.k8s.io/v1", "kind": updated.GetKind(),
		"metadata": map[string]any{"name": "first", "labels": map[string]any{"applied": "yes"}}}}
	if got := must(client.Apply(t.Context(), "first", applied, metav1.ApplyOptions{FieldManager: "test"}))(t); got.GetLabels()["applied"] != "yes" {
		t.Errorf("labels after apply: %v", got.GetLabels())
	}
	if good != "" {
		before := updated.GetGeneration()
		if got := must(client.Patch(t.Context(), "first", types.MergePatchType, []byte(good), metav1.PatchOptions{}))(t); got.GetGeneration() != before+1 {
			t.Errorf("generation %d after a change of %d", got.GetGeneration(), before)
		}
		return
	}
	for _, another := range []string{`{"spec":{"devices":{"requests":[]}}}`, `{"spec":{"spec":{"devices":{"requests":[]}}}}`} {
		_, specified, err := unstructured.NestedFieldNoCopy(updated.Object, "spec", "spec")
		if err != nil || specified != strings.Contains(another, `"spec":{"spec"`) {
			continue
		}
		_, err = client.Patch(t.Context(), "first", types.MergePatchType, []byte(another), metav1.PatchOptions{})
		refused(t, err, metav1.StatusReasonInvalid, "field is immutable")
	}
}

func collected(t *testing.T, client dynamic.ResourceInterface, _ func(string) *unstructured.Unstructured, _ string) {
	if err := client.Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "crud=yes"}); err != nil {
		t.Error(err)
	}
	if list := must(client.List(t.Context(), metav1.ListOptions{LabelSelector: "crud=yes"}))(t); len(list.Items) != 0 {
		t.Errorf("%d are left", len(list.Items))
	}
}

func aDeviceClaim(name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: named(name), Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "nowhere"}}}}}}
}

// as is a client of an account of the namespace, with these rights there and these everywhere.
func (c cluster) as(t *testing.T, account string, here, everywhere []rbacv1.PolicyRule) kubernetes.Interface {
	t.Helper()
	role := metav1.ObjectMeta{Namespace: c.namespace, Name: account}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: c.namespace, Name: account}}
	rbac, ctx := c.Client.RbacV1(), t.Context()
	must(rbac.Roles(c.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: role, Rules: here}, metav1.CreateOptions{}))(t)
	must(rbac.RoleBindings(c.namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: role, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account}}, metav1.CreateOptions{}))(t)
	role.Namespace = ""
	must(rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: role, Rules: everywhere}, metav1.CreateOptions{}))(t)
	must(rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: role, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account}}, metav1.CreateOptions{}))(t)
	config := restclient.CopyConfig(c.Config)
	config.Impersonate = restclient.ImpersonationConfig{UserName: "system:serviceaccount:" + c.namespace + ":" + account,
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n"}}}
	return must(kubernetes.NewForConfig(config))(t)
}

// claimParts: a claim's status is written in parts, each by whoever has the right to it.
func claimParts(t *testing.T, c cluster) {
	ctx := t.Context()
	claims := c.Client.ResourceV1().ResourceClaims(c.namespace)
	claim := must(claims.Create(ctx, aDeviceClaim("parts"), metav1.CreateOptions{}))(t)
	if e := claim.Spec.Devices.Requests[0].Exactly; e.AllocationMode != resourcev1.DeviceAllocationModeExactCount || e.Count != 1 {
		t.Errorf("defaults: %+v", e)
	}
	write := rbacv1.PolicyRule{Verbs: []string{"get", "update", "patch"}, APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims/status"}}
	right := func(subresource, verb string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims/" + subresource}, ResourceNames: names}
	}
	binder := c.as(t, "binder", []rbacv1.PolicyRule{write}, []rbacv1.PolicyRule{right("binding", "update")}).ResourceV1().ResourceClaims(c.namespace)
	here := c.as(t, "here", []rbacv1.PolicyRule{write, right("driver", "associated-node:update", "d.example.com")}, nil).ResourceV1().ResourceClaims(c.namespace)
	other := c.as(t, "other", []rbacv1.PolicyRule{write, right("driver", "arbitrary-node:update", "o.example.com")}, nil).ResourceV1().ResourceClaims(c.namespace)

	claim.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d.example.com", Pool: "n", Device: "gpu-0"}}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}}}},
	}
	claim.Labels = map[string]string{"not": "taken over"}
	c.Eventually("the roles count", func(ctx context.Context) error {
		_, err := other.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		if !strings.Contains(fmt.Sprint(err), `requires resource="resourceclaims/binding", verb="update" permission`) {
			return fmt.Errorf("who may not bind: %w", err)
		}
		bound, err := binder.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		if err == nil {
			claim = bound
		}
		return err
	})
	if claim.Status.Allocation == nil || claim.Labels["not"] != "" {
		t.Errorf("after binding: %+v", claim)
	}
	claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d.example.com", Pool: "n", Device: "gpu-0"}}
	for name, who := range map[string]interface {
		UpdateStatus(context.Context, *resourcev1.ResourceClaim, metav1.UpdateOptions) (*resourcev1.ResourceClaim, error)
	}{"who binds": binder, "another driver": other} {
		if _, err := who.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); !strings.Contains(fmt.Sprint(err), `changing status.devices requires resource="resourceclaims/driver"`) {
			t.Errorf("%s says what a device is like: %v", name, err)
		}
	}
	claim = must(here.UpdateStatus(ctx, claim, metav1.UpdateOptions{}))(t)
	if len(claim.Status.Devices) != 1 {
		t.Errorf("the driver's word is not kept: %+v", claim.Status)
	}
	_, err := claims.Patch(ctx, "parts", types.MergePatchType, []byte(`{"status":{"allocation":{"devices":{"results":[]}}}}`), metav1.PatchOptions{}, "status")
	refused(t, err, metav1.StatusReasonInvalid, "status.allocation: Invalid value")
	freed := must(claims.Patch(ctx, "parts", types.MergePatchType, []byte(`{"status":{"allocation":null}}`), metav1.PatchOptions{}, "status"))(t)
	if len(freed.Status.Devices) != 0 {
		t.Errorf("of devices that were given back drivers still say %+v", freed.Status.Devices)
	}
	if err := claims.Delete(ctx, "parts", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func sliceFields(t *testing.T, c cluster) {
	ctx, slices := t.Context(), c.Client.ResourceV1().ResourceSlices()
	for _, name := range []string{"x", "y"} {
		slice := &resourcev1.ResourceSlice{ObjectMeta: named("of-" + name)}
		slice.Spec = resourcev1.ResourceSliceSpec{Driver: name + ".example.com", NodeName: new("node-" + name), Pool: resourcev1.ResourcePool{Name: "pool-" + name, ResourceSliceCount: 1}}
		must(slices.Create(ctx, slice, metav1.CreateOptions{}))(t)
	}
	for _, selector := range []string{"spec.nodeName=node-x", "spec.driver=x.example.com", "spec.pool.name=pool-x"} {
		if list := must(slices.List(ctx, metav1.ListOptions{FieldSelector: selector}))(t); len(list.Items) != 1 || list.Items[0].Name != "of-x" {
			t.Errorf("%s selects %d slices", selector, len(list.Items))
		}
	}
	_, err := slices.List(ctx, metav1.ListOptions{FieldSelector: "spec.allNodes=true"})
	refused(t, err, metav1.StatusReasonBadRequest, "field label not supported")
	if err := slices.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.nodeName=node-x"}); err != nil {
		t.Error(err)
	}
	if _, err := slices.Get(ctx, "of-x", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the node's slice: %v", err)
	}
	if err := slices.Delete(ctx, "of-y", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// administration: a claim that asks for devices which others have is for namespaces that an administrator has marked.
func administration(t *testing.T, c cluster) {
	ctx := t.Context()
	asking := aDeviceClaim("administers")
	asking.Spec.Devices.Requests[0].Exactly.AdminAccess = new(true)
	_, err := c.Client.ResourceV1().ResourceClaims(c.namespace).Create(ctx, asking, metav1.CreateOptions{})
	const text = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
	refused(t, err, metav1.StatusReasonInvalid, text)
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: named("administers"), Spec: resourcev1.ResourceClaimTemplateSpec{Spec: asking.Spec}}
	_, err = c.Client.ResourceV1().ResourceClaimTemplates(c.namespace).Create(ctx, template, metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonInvalid, text)
	must(c.Client.CoreV1().Namespaces().Patch(ctx, c.namespace, types.MergePatchType, []byte(`{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}`), metav1.PatchOptions{}))(t)
	c.Eventually("the namespace is marked", func(ctx context.Context) error {
		_, err := c.Client.ResourceV1().ResourceClaims(c.namespace).Create(ctx, asking, metav1.CreateOptions{})
		return err
	})
}

// deviceQuota: a quota limits the devices of a class that claims may get, and counts those that there are.
func deviceQuota(t *testing.T, c cluster) {
	const scarce = corev1.ResourceName("scarce" + corev1.ResourceClaimsPerClass)
	ctx, claims := t.Context(), c.Client.ResourceV1().ResourceClaims(c.namespace)
	asking := func(name string, n int64) *resourcev1.ResourceClaim {
		claim := aDeviceClaim(name)
		claim.Spec.Devices.Requests[0].Exactly.DeviceClassName, claim.Spec.Devices.Requests[0].Exactly.Count = "scarce", n
		return claim
	}
	must(claims.Create(ctx, asking("before", 2), metav1.CreateOptions{}))(t)
	quotas := c.Client.CoreV1().ResourceQuotas(c.namespace)
	must(quotas.Create(ctx, &corev1.ResourceQuota{ObjectMeta: named("devices"), Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{scarce: resource.MustParse("3")}}}, metav1.CreateOptions{}))(t)
	used := func(want int64) {
		c.Eventually(fmt.Sprintf("%d devices are used", want), func(ctx context.Context) error {
			q, err := quotas.Get(ctx, "devices", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got, there := q.Status.Used[scarce]; !there || got.Value() != want {
				left, err := claims.List(ctx, metav1.ListOptions{})
				return fmt.Errorf("the quota says %v; there are %+v (%v)", q.Status, left, err)
			}
			return nil
		})
	}
	used(2)
	// Admission hears of the quota by a watch of its own, which may be later than the status.
	c.Eventually("more than is left is refused", refusal(func() error {
		_, err := claims.Create(ctx, asking("much", 2), dryRun)
		return err
	}, "exceeded quota: devices, requested: scarce.deviceclass.resource.k8s.io/devices=2, used: scarce.deviceclass.resource.k8s.io/devices=2, limited: scarce.deviceclass.resource.k8s.io/devices=3"))
	if err := claims.Delete(ctx, "before", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	used(0)
	if err := quotas.Delete(ctx, "devices", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
