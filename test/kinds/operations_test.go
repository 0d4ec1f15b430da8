package kinds

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/everynode/everynode/internal/testenv"
)

// operated is a kind with which everything is done that an API has for it.
type operated struct {
	group, resource, kind string
	clustered             bool
	// object is all but the metadata. BEFORE and AFTER are the parts of the name on both sides of its first dot.
	object string
	// status is some of a status; empty for a kind without one.
	status string
	scale  bool
	// versioned says that a replacement must say of which version it is, and putMakes that one of what is not there makes it.
	versioned, putMakes bool
	// names are those of four objects, where not any name will do.
	names []string
}

const (
	template = `"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	seen     = `{"conditions":[{"type":"Seen","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`
	asks     = `"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}`
)

// allOperated are the kinds. None of the objects makes anything happen that would be in a test's way.
var allOperated = []operated{
	{group: "/v1", resource: "podtemplates", kind: "PodTemplate", object: "{" + template + "}"},
	{group: "/v1", resource: "limitranges", kind: "LimitRange", putMakes: true, object: `{"spec":{"limits":[{"type":"Container","max":{"cpu":"1"}}]}}`},
	{group: "/v1", resource: "resourcequotas", kind: "ResourceQuota", object: `{"spec":{"hard":{"pods":"1k"}}}`, status: `{"hard":{"pods":"7"}}`},
	{group: "/v1", resource: "replicationcontrollers", kind: "ReplicationController", object: `{"spec":{"replicas":0,"selector":{"app":"x"},` + template + `}}`, status: seen, scale: true},
	{group: "/v1", resource: "persistentvolumes", kind: "PersistentVolume", clustered: true, status: `{"message":"m","reason":"R"}`,
		object: `{"spec":{"storageClassName":"nobodys","capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/tmp"}}}`},
	{group: "/v1", resource: "persistentvolumeclaims", kind: "PersistentVolumeClaim", status: seenOf("Resizing"),
		object: `{"spec":{"storageClassName":"none","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`},
	{group: "apps/v1", resource: "statefulsets", kind: "StatefulSet", object: `{"spec":{"replicas":0,"selector":{"matchLabels":{"app":"x"}},` + template + `}}`, status: seen, scale: true},
	{group: "batch/v1", resource: "jobs", kind: "Job", status: `{"startTime":"2026-01-01T00:00:00Z"}`,
		object: `{"spec":{"suspend":true,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`},
	{group: "batch/v1", resource: "cronjobs", kind: "CronJob", status: `{"lastScheduleTime":"2026-01-01T00:00:00Z"}`,
		object: `{"spec":{"suspend":true,"schedule":"0 0 1 1 *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`},
	{group: "networking.k8s.io/v1", resource: "ingresses", kind: "Ingress", status: `{"loadBalancer":{"ingress":[{"ip":"169.1.1.1"}]}}`,
		object: `{"spec":{"defaultBackend":{"service":{"name":"web","port":{"number":80}}}}}`},
	{group: "networking.k8s.io/v1", resource: "ingressclasses", kind: "IngressClass", clustered: true, object: `{"spec":{"controller":"example.com/web"}}`},
	{group: "networking.k8s.io/v1", resource: "servicecidrs", kind: "ServiceCIDR", clustered: true, object: `{"spec":{"cidrs":["10.120.0.0/28"]}}`, status: seen},
	{group: "networking.k8s.io/v1", resource: "ipaddresses", kind: "IPAddress", clustered: true, names: []string{"10.96.240.1", "10.96.240.2", "10.96.240.3", "fd00::1"},
		object: `{"spec":{"parentRef":{"group":"gateways.example.com","resource":"gateways","name":"g"}}}`},
	{group: "node.k8s.io/v1", resource: "runtimeclasses", kind: "RuntimeClass", clustered: true, versioned: true, putMakes: true, object: `{"handler":"kata"}`},
	{group: "storage.k8s.io/v1", resource: "storageclasses", kind: "StorageClass", clustered: true, object: `{"provisioner":"example.com/disks"}`},
	{group: "storage.k8s.io/v1", resource: "volumeattributesclasses", kind: "VolumeAttributesClass", clustered: true, object: `{"driverName":"example.com","parameters":{"iops":"1"}}`},
	{group: "storage.k8s.io/v1", resource: "csistoragecapacities", kind: "CSIStorageCapacity", versioned: true, object: `{"storageClassName":"x","capacity":"1Gi"}`},
	{group: "storage.k8s.io/v1", resource: "volumeattachments", kind: "VolumeAttachment", clustered: true, versioned: true, status: `{"attached":true}`,
		object: `{"spec":{"attacher":"example.com","nodeName":"n","source":{"persistentVolumeName":"v"}}}`},
	{group: "flowcontrol.apiserver.k8s.io/v1", resource: "flowschemas", kind: "FlowSchema", clustered: true, versioned: true, status: seen, object: `{"spec":{"matchingPrecedence":9000,"priorityLevelConfiguration":{"name":"none"}}}`},
	{group: "flowcontrol.apiserver.k8s.io/v1", resource: "prioritylevelconfigurations", kind: "PriorityLevelConfiguration", clustered: true, versioned: true, status: seen,
		object: `{"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":1,"limitResponse":{"type":"Reject"}}}}`},
	{group: "resource.k8s.io/v1", resource: "deviceclasses", kind: "DeviceClass", clustered: true, object: `{"spec":{}}`},
	{group: "resource.k8s.io/v1", resource: "resourceslices", kind: "ResourceSlice", clustered: true, object: `{"spec":{"driver":"d.example.com","nodeName":"n","pool":{"name":"n","resourceSliceCount":1}}}`},
	{group: "resource.k8s.io/v1", resource: "resourceclaims", kind: "ResourceClaim", object: "{\"spec\":{" + asks + "}}",
		status: `{"allocation":{"devices":{"results":[{"request":"r","driver":"d.example.com","pool":"n","device":"gpu-0"}]}}}`},
	{group: "resource.k8s.io/v1", resource: "resourceclaimtemplates", kind: "ResourceClaimTemplate", object: `{"spec":{"spec":{` + asks + `}}}`},
	{group: "apiregistration.k8s.io/v1", resource: "apiservices", kind: "APIService", clustered: true, versioned: true, status: seen,
		names:  []string{"v1.a.example.com", "v1.b.example.com", "v1.c.example.com", "v1.d.example.com"},
		object: `{"spec":{"group":"AFTER","version":"v1","groupPriorityMinimum":2000,"versionPriority":20,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"nobody"}}}`},
	{group: "apiextensions.k8s.io/v1", resource: "customresourcedefinitions", kind: "CustomResourceDefinition", clustered: true, versioned: true, status: seen,
		names: []string{"as.walk.example.com", "bs.walk.example.com", "cs.walk.example.com", "ds.walk.example.com"},
		object: `{"spec":{"group":"AFTER","scope":"Namespaced","names":{"plural":"BEFORE","singular":"BEFOREe","kind":"KBEFORE","listKind":"KBEFOREList"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`},
}

func seenOf(condition string) string { return strings.Replace(seen, "Seen", condition, 1) }

// TestOperations does with each kind all that can be done, as clients of the API do it, while somebody watches.
func TestOperations(t *testing.T) {
	env := testenv.Start(t)
	must(env.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "operations"}}, metav1.CreateOptions{}))(t)
	client := must(dynamic.NewForConfig(env.Config))(t)
	for _, kind := range allOperated {
		t.Run(kind.kind, func(t *testing.T) {
			t.Parallel()
			if kind.names == nil {
				kind.names = []string{"a", "b", "c", "d"}
			}
			gv := must(schema.ParseGroupVersion(strings.TrimPrefix(kind.group, "/")))(t)
			all := client.Resource(gv.WithResource(kind.resource))
			w := &walk{operated: kind, t: t, all: all, api: all, gv: gv, label: metav1.ListOptions{LabelSelector: "walk=" + strings.ToLower(kind.kind)}}
			if !kind.clustered {
				w.api = all.Namespace("operations")
			}
			w.discovered(env)
			stream := must(all.Watch(t.Context(), w.label))(t)
			defer stream.Stop()
			w.events = stream.ResultChan()
			w.created()
			w.changed()
			w.statusOf()
			w.scaled()
			w.removed()
		})
	}
}

// walk is one kind's way through its operations.
type walk struct {
	operated
	t        *testing.T
	gv       schema.GroupVersion
	all, api dynamic.ResourceInterface
	label    metav1.ListOptions
	events   <-chan watch.Event
}

func (w *walk) make(name string) *unstructured.Unstructured {
	w.t.Helper()
	before, after, _ := strings.Cut(name, ".")
	content := map[string]any{}
	if err := json.Unmarshal([]byte(strings.NewReplacer("BEFORE", before, "AFTER", after).Replace(w.object)), &content); err != nil {
		w.t.Fatal(err)
	}
	// Numbers are of the type that the decoder of objects gives them.
	out := &unstructured.Unstructured{}
	content["apiVersion"], content["kind"] = w.gv.String(), w.kind
	content["metadata"] = map[string]any{"name": name, "labels": map[string]any{"walk": strings.ToLower(w.kind)}}
	if err := out.UnmarshalJSON(must(json.Marshal(content))(w.t)); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// discovered looks for the group, its version, and the kind with its verbs and parts.
func (w *walk) discovered(env *testenv.Env) {
	if w.gv.Group != "" {
		groups := must(env.Client.Discovery().ServerGroups())(w.t)
		if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool {
			return g.Name == w.gv.Group && slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == w.gv.Version })
		}) {
			w.t.Errorf("/apis does not have %s", w.gv)
		}
		group := metav1.APIGroup{}
		if err := env.Client.Discovery().RESTClient().Get().AbsPath("/apis/" + w.gv.Group).Do(w.t.Context()).Into(&group); err != nil || group.Name != w.gv.Group {
			w.t.Errorf("/apis/%s is %v, %v", w.gv.Group, group, err)
		}
	}
	verbs := map[string]string{}
	for _, r := range must(env.Client.Discovery().ServerResourcesForGroupVersion(w.gv.String()))(w.t).APIResources {
		if r.Name == w.resource && (r.Kind != w.kind || r.Namespaced == w.clustered || r.SingularName != strings.ToLower(w.kind)) {
			w.t.Errorf("it is served as %+v", r)
		}
		slices.Sort(r.Verbs)
		verbs[r.Name] = strings.Join(r.Verbs, " ")
	}
	want := map[string]string{w.resource: "create delete deletecollection get list patch update watch"}
	if w.status != "" {
		want[w.resource+"/status"] = "get patch update"
	}
	if w.scale {
		want[w.resource+"/scale"] = "get patch update"
	}
	for name, verbsWanted := range want {
		if verbs[name] != verbsWanted {
			w.t.Errorf("verbs of %s are %q, want %q", name, verbs[name], verbsWanted)
		}
	}
}

// told waits until the watch tells of an object as wanted.
func (w *walk) told(kind watch.EventType, name string, is func(*unstructured.Unstructured) bool) {
	w.t.Helper()
	for {
		select {
		case e, open := <-w.events:
			if !open {
				w.t.Fatalf("the watch ended before it told of %s %s", kind, name)
			}
			if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == kind && u.GetName() == name && (is == nil || is(u)) {
				return
			}
		case <-w.t.Context().Done():
			w.t.Fatalf("the watch did not tell of %s %s", kind, name)
		}
	}
}

func (w *walk) created() {
	t, ctx := w.t, w.t.Context()
	for _, name := range w.names[:3] {
		made := must(w.api.Create(ctx, w.withStatus(w.make(name)), metav1.CreateOptions{}))(t)
		w.noStatus("a creation", made)
		if made.GetUID() == "" || made.GetResourceVersion() == "" || made.Object["metadata"].(map[string]any)["creationTimestamp"] == nil || made.GetKind() != w.kind {
			t.Errorf("made is %v", made.Object["metadata"])
		}
		w.told(watch.Added, name, nil)
	}
	applied := must(w.api.Apply(ctx, w.names[3], w.withStatus(w.make(w.names[3])), metav1.ApplyOptions{FieldManager: "walk"}))(t)
	w.noStatus("apply", applied)
	if f := applied.GetManagedFields(); len(f) == 0 || f[0].Manager != "walk" || f[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("fields of who applied it: %v", f)
	}
	w.told(watch.Added, w.names[3], nil)
	_, err := w.api.Create(ctx, w.make(w.names[0]), metav1.CreateOptions{})
	refused(t, err, metav1.StatusReasonAlreadyExists, "already exists")
	if got := must(w.api.Get(ctx, w.names[0], metav1.GetOptions{}))(t); got.GetName() != w.names[0] || !contains(got.Object, w.make(w.names[0]).Object) {
		t.Errorf("read is %v", got.Object)
	}
	for where, api := range map[string]dynamic.ResourceInterface{"its namespace": w.api, "all namespaces": w.all} {
		if list := must(api.List(ctx, w.label))(t); len(list.Items) != 4 || list.GetKind() != w.kind+"List" {
			t.Errorf("%d are in %s, in a %s", len(list.Items), where, list.GetKind())
		}
	}
}

func (w *walk) changed() {
	t, ctx, name := w.t, w.t.Context(), w.names[0]
	for how, patch := range map[types.PatchType]string{
		types.MergePatchType: `{"metadata":{"annotations":{"merge":"yes"}}}`,
		types.JSONPatchType:  `[{"op":"add","path":"/metadata/labels/json","value":"yes"}]`,
	} {
		must(w.api.Patch(ctx, name, how, []byte(patch), metav1.PatchOptions{}))(t)
	}
	must(w.api.Apply(ctx, name, &unstructured.Unstructured{Object: map[string]any{"apiVersion": w.gv.String(), "kind": w.kind,
		"metadata": map[string]any{"name": name, "labels": map[string]any{"applied": "yes"}}}}, metav1.ApplyOptions{FieldManager: "other"}))(t)
	w.told(watch.Modified, name, func(u *unstructured.Unstructured) bool {
		return u.GetAnnotations()["merge"] == "yes" && u.GetLabels()["json"] == "yes" && u.GetLabels()["applied"] == "yes"
	})
	w.again(name, func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		u.SetAnnotations(map[string]string{"updated": "yes"})
		return w.api.Update(ctx, u, metav1.UpdateOptions{})
	})
	w.told(watch.Modified, name, func(u *unstructured.Unstructured) bool {
		return u.GetAnnotations()["updated"] == "yes" && u.GetAnnotations()["merge"] == ""
	})
	late := must(w.api.Get(ctx, name, metav1.GetOptions{}))(t)
	must(w.api.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"meanwhile":"yes"}}}`), metav1.PatchOptions{}))(t)
	_, err := w.api.Update(ctx, late, metav1.UpdateOptions{})
	refused(t, err, metav1.StatusReasonConflict, "the object has been modified")
	w.replaced()
}

// withStatus puts the status of the kind into an object.
func (w *walk) withStatus(u *unstructured.Unstructured) *unstructured.Unstructured {
	w.t.Helper()
	if w.status != "" {
		u.Object["status"] = must(jsonObject(w.status))(w.t)
	}
	return u
}

// noStatus fails if an object took the status of withStatus, or if it belongs to who applied it: only /status writes it.
func (w *walk) noStatus(after string, u *unstructured.Unstructured) {
	w.t.Helper()
	if w.status == "" {
		return
	}
	if contains(u.Object["status"], must(jsonObject(w.status))(w.t)) {
		w.t.Errorf("after %s the status is %v", after, u.Object["status"])
	}
	for _, f := range u.GetManagedFields() {
		if f.Operation == metav1.ManagedFieldsOperationApply && strings.Contains(f.FieldsV1.String(), "f:status") {
			w.t.Errorf("after %s %s has %s", after, f.Manager, f.FieldsV1)
		}
	}
}

// replaced writes one without saying of which version it is. Its status stays, and so does its generation.
func (w *walk) replaced() {
	t, ctx := w.t, w.t.Context()
	before := must(w.api.Get(ctx, w.names[0], metav1.GetOptions{}))(t)
	next := w.withStatus(before.DeepCopy())
	next.SetResourceVersion("")
	next.SetAnnotations(map[string]string{"replaced": "yes"})
	after, err := w.api.Update(ctx, next, metav1.UpdateOptions{})
	if w.versioned {
		refused(t, err, metav1.StatusReasonInvalid, "metadata.resourceVersion")
		return
	}
	if err != nil || after.GetAnnotations()["replaced"] == "" || after.GetGeneration() != before.GetGeneration() {
		t.Errorf("a replacement without a version: %v, generation %d, before %d, %v", after, after.GetGeneration(), before.GetGeneration(), err)
		return
	}
	w.noStatus("a replacement", after)
}

// again changes an object as it is now, until nobody else changed it meanwhile.
func (w *walk) again(name string, change func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (out *unstructured.Unstructured) {
	w.t.Helper()
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		u, err := w.api.Get(w.t.Context(), name, metav1.GetOptions{})
		if err == nil {
			out, err = change(u)
		}
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// statusOf reads the status of one, and writes it by each verb: the status of an object changes, and not what is wanted of it.
func (w *walk) statusOf() {
	if w.status == "" {
		return
	}
	t, ctx := w.t, w.t.Context()
	var want map[string]any
	if err := json.Unmarshal([]byte(w.status), &want); err != nil {
		t.Fatal(err)
	}
	check := func(how string, before, after *unstructured.Unstructured) {
		t.Helper()
		if !contains(after.Object["status"], want) || !reflect.DeepEqual(before.Object["spec"], after.Object["spec"]) || before.GetGeneration() != after.GetGeneration() || len(after.GetOwnerReferences()) > 0 {
			t.Errorf("after %s: %v, and before %v", how, after.Object, before.Object)
		}
	}
	before := must(w.api.Get(ctx, w.names[0], metav1.GetOptions{}, "status"))(t)
	if before.GetKind() != w.kind || before.Object["spec"] == nil {
		t.Errorf("the status is read as %v", before.Object)
	}
	owners := `[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]`
	if w.gv.Group == "apiextensions.k8s.io" {
		owners = "null" // The library takes owners of these with a status, and the garbage collector acts on it.
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"patched":"status"},"ownerReferences":%s},"spec":null,"status":%s}`, owners, w.status)
	after := must(w.api.Patch(ctx, w.names[0], types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"))(t)
	check("a patch", before, after)
	w.told(watch.Modified, w.names[0], func(u *unstructured.Unstructured) bool { return contains(u.Object["status"], want) })
	after = w.again(w.names[1], func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		before = u.DeepCopy()
		merged, _ := u.Object["status"].(map[string]any)
		if merged == nil {
			merged = map[string]any{}
		}
		for key, value := range must(jsonObject(w.status))(t) {
			merged[key] = value
		}
		u.Object["status"] = merged
		return w.api.UpdateStatus(ctx, u, metav1.UpdateOptions{})
	})
	check("an update", before, after)
	before = must(w.api.Get(ctx, w.names[2], metav1.GetOptions{}))(t)
	after = must(w.api.ApplyStatus(ctx, w.names[2], &unstructured.Unstructured{Object: map[string]any{"apiVersion": w.gv.String(), "kind": w.kind,
		"metadata": map[string]any{"name": w.names[2]}, "status": must(jsonObject(w.status))(t)}}, metav1.ApplyOptions{FieldManager: "walk", Force: true}))(t)
	check("apply", before, after)
}

func jsonObject(text string) (map[string]any, error) {
	u := &unstructured.Unstructured{}
	err := u.UnmarshalJSON([]byte(`{"apiVersion":"v1","kind":"X","x":` + text + `}`))
	out, _, _ := unstructured.NestedMap(u.Object, "x")
	return out, err
}

// scaled changes how many there should be, by each verb.
func (w *walk) scaled() {
	if !w.scale {
		return
	}
	t, ctx, name := w.t, w.t.Context(), w.names[0]
	wanted := func(u *unstructured.Unstructured) int64 {
		n, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		return n
	}
	if got := must(w.api.Get(ctx, name, metav1.GetOptions{}, "scale"))(t); got.GetKind() != "Scale" || wanted(got) != 0 {
		t.Errorf("the scale is %v", got.Object)
	}
	before := must(w.api.Get(ctx, name, metav1.GetOptions{}))(t).GetGeneration()
	if got := must(w.api.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}, "scale"))(t); wanted(got) != 2 {
		t.Errorf("the scale after a patch is %v", got.Object)
	}
	if now := must(w.api.Get(ctx, name, metav1.GetOptions{}))(t).GetGeneration(); now != before+1 {
		t.Errorf("the generation after a patch of the scale is %d, before %d", now, before)
	}
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		u, err := w.api.Get(ctx, name, metav1.GetOptions{}, "scale")
		if err == nil {
			_ = unstructured.SetNestedField(u.Object, int64(1), "spec", "replicas")
			_, err = w.api.Update(ctx, u, metav1.UpdateOptions{}, "scale")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := must(w.api.Get(ctx, name, metav1.GetOptions{}))(t); wanted(got) != 1 {
		t.Errorf("what is wanted after an update of the scale is %v", got.Object["spec"])
	}
}

func (w *walk) removed() {
	t, ctx := w.t, w.t.Context()
	options := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	if err := w.api.Delete(ctx, w.names[0], options); err != nil {
		t.Fatal(err)
	}
	w.told(watch.Deleted, w.names[0], nil)
	if _, err := w.api.Get(ctx, w.names[0], metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was deleted is read: %v", err)
	}
	if list := must(w.api.List(ctx, w.label))(t); len(list.Items) != 3 {
		t.Errorf("%d are left of four", len(list.Items))
	}
	if err := w.api.DeleteCollection(ctx, options, w.label); err != nil {
		t.Fatal(err)
	}
	for left := map[string]bool{w.names[1]: true, w.names[2]: true, w.names[3]: true}; len(left) > 0; {
		e, open := <-w.events
		if !open {
			t.Fatalf("the watch ended before it told that these went: %v", left)
		}
		if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == watch.Deleted {
			delete(left, u.GetName())
		}
	}
	if list := must(w.api.List(ctx, w.label))(t); len(list.Items) != 0 {
		t.Errorf("%d are left", len(list.Items))
	}
	made, err := w.api.Update(ctx, w.make(w.names[0]), metav1.UpdateOptions{})
	if !w.putMakes {
		refused(t, err, metav1.StatusReasonNotFound, "not found")
		return
	}
	if err != nil || made.GetUID() == "" {
		t.Errorf("a replacement of what is not there: %v, %v", made, err)
	}
	if err := w.api.Delete(ctx, w.names[0], options); err != nil {
		t.Error(err)
	}
}

// contains says whether all of want is in got: each field of an object, and each item of a list.
func contains(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		in, ok := got.(map[string]any)
		for key, value := range want {
			ok = ok && contains(in[key], value)
		}
		return ok
	case []any:
		in, ok := got.([]any)
		for _, value := range want {
			ok = ok && slices.ContainsFunc(in, func(x any) bool { return contains(x, value) })
		}
		return ok
	}
	return fmt.Sprint(got) == fmt.Sprint(want)
}
