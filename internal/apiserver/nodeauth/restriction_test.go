package nodeauth

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/everynode/everynode/internal/objects/nodestartup"
)

func write(who user.Info, operation admission.Operation, resource, subresource, namespace, name string, obj, old runtime.Object) admission.Attributes {
	gvr := corev1.SchemeGroupVersion.WithResource(resource)
	switch resource {
	case "leases":
		gvr = coordinationv1.SchemeGroupVersion.WithResource(resource)
	case "resourceslices":
		gvr = resourcev1.SchemeGroupVersion.WithResource(resource)
	case "csinodes":
		gvr = storagev1.SchemeGroupVersion.WithResource(resource)
	}
	return admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{Kind: "X"}, namespace, name, gvr, subresource, operation, nil, false, who)
}

func csiNode(name string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestRestrictionOfSlices(t *testing.T) {
	r := NewRestriction(&cluster{}, audiences(""))
	slice := func(node string) *resourcev1.ResourceSlice {
		if node == "" {
			return &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{AllNodes: new(true)}}
		}
		return &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{NodeName: &node}}
	}
	for _, c := range []struct {
		operation admission.Operation
		node      string
		refused   bool
	}{{"CREATE", "n1", false}, {"CREATE", "n2", true}, {"CREATE", "", true}, {"DELETE", "n1", false}, {"DELETE", "n2", true}, {"DELETE", "", true}, {"UPDATE", "n1", false}, {"UPDATE", "n2", true}, {"UPDATE", "", true}} {
		obj, old := slice(c.node), slice("n1")
		switch c.operation {
		case "DELETE":
			obj, old = nil, obj
		case "UPDATE":
			old = obj
		}
		a := write(nodeUser("n1"), c.operation, "resourceslices", "", "", "s", obj, old)
		err := r.Admit(t.Context(), a, nil)
		if c.operation == "DELETE" {
			err = r.Validate(t.Context(), a, nil)
		}
		if refused := err != nil && strings.Contains(err.Error(), "with the same NodeName as the requesting node"); refused != c.refused {
			t.Errorf("%s of a slice of %q: %v", c.operation, c.node, err)
		}
	}
}

func mirrorPod(node string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}, Spec: corev1.PodSpec{NodeName: node}}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID("uid-of-" + node), Controller: new(true)}}
	if change != nil {
		change(p)
	}
	return p
}

func TestRestrictionOfPods(t *testing.T) {
	own, other := pod("n1", "a"), pod("n2", "b")
	relabelled := own.DeepCopy()
	relabelled.Labels = map[string]string{"app": "x"}
	wanting := pod("n1", "w", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault"}}}}},
		corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "known"}}, corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "unknown"}})
	claims := own.DeepCopy()
	claims.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu"}}
	driver := storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "known"}, Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "storage"}}}}
	r := NewRestriction(&cluster{pods: []corev1.Pod{own, other, wanting}, nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-of-n1"}}},
		drivers: []storagev1.CSIDriver{driver}}, audiences("registry"))
	n1 := nodeUser("n1")
	token := func(name, uid string, audiences ...string) *authenticationv1.TokenRequest {
		return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(uid)}}}
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	grown, taken := claim.DeepCopy(), claim.DeepCopy()
	grown.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	taken.Finalizers = []string{"example.com/mine"}
	lease := func(name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	eviction := &policyv1.Eviction{}
	cases := []struct {
		name string
		a    admission.Attributes
		says string
	}{
		{"mirror pod", write(n1, "CREATE", "pods", "", "ns", "m", mirrorPod("n1", nil), nil), ""},
		{"ordinary pod", write(n1, "CREATE", "pods", "", "ns", "a", &own, nil), "can only create mirror pods"},
		{"mirror pod elsewhere", write(n1, "CREATE", "pods", "", "ns", "m", mirrorPod("n2", nil), nil), "spec.nodeName set to itself"},
		{"mirror pod without a node", write(n1, "CREATE", "pods", "", "ns", "m", mirrorPod("", nil), nil), "spec.nodeName set to itself"},
		{"mirror pod with a secret", write(n1, "CREATE", "pods", "", "ns", "m", mirrorPod("n1", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: secretVolume("s")}}
		}), nil), "can not create pods that reference"},
		{"own pod deleted", write(n1, "DELETE", "pods", "", "ns", "a", nil, &own), ""},
		{"other's pod deleted", write(n1, "DELETE", "pods", "", "ns", "b", nil, &other), "can only delete pods"},
		{"pod's spec", write(n1, "UPDATE", "pods", "", "ns", "a", &own, &own), "unexpected operation"},
		{"own status", write(n1, "UPDATE", "pods", "status", "ns", "a", &own, &own), ""},
		{"other's status", write(n1, "UPDATE", "pods", "status", "ns", "b", &other, &other), "can only update pod status"},
		{"status that takes a pod over", write(n1, "UPDATE", "pods", "status", "ns", "b", &own, &other), "can only update pod status"},
		{"labels through status", write(n1, "UPDATE", "pods", "status", "ns", "a", relabelled, &own), "cannot update labels"},
		{"debugging its own pod", write(n1, "UPDATE", "pods", "ephemeralcontainers", "ns", "a", &own, &own), "only 'status' and 'eviction' are allowed"},
		{"resizing its own pod", write(n1, "UPDATE", "pods", "resize", "ns", "a", &own, &own), "only 'status' and 'eviction' are allowed"},
		{"own eviction", write(n1, "CREATE", "pods", "eviction", "ns", "a", eviction, nil), ""},
		{"other's eviction", write(n1, "CREATE", "pods", "eviction", "ns", "b", eviction, nil), "can only evict pods"},
		{"eviction of nothing", write(n1, "CREATE", "pods", "eviction", "ns", "gone", eviction, nil), "not found"},
		{"binding", write(n1, "CREATE", "pods", "binding", "ns", "a", &corev1.Binding{}, nil), "unexpected pod subresource"},
		{"token for its pod", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("w", "uid-of-w", "vault"), nil), ""},
		{"token for its pod's driver", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("w", "uid-of-w", "storage"), nil), ""},
		{"token that a role allows", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("a", "uid-of-a", "registry"), nil), ""},
		{"token for the API", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("w", "uid-of-w"), nil), `audience "" not found in pod spec volume, system:node:n1 is not authorized`},
		{"token for somebody", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("w", "uid-of-w", "bank"), nil), `audience "bank" not found in pod spec volume`},
		{"token for another pod's audience", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("a", "uid-of-a", "vault"), nil), `audience "vault" not found in pod spec volume`},
		{"token for two", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("w", "uid-of-w", "vault", "storage"), nil), "node may only request 0 or 1 audiences"},
		{"claims through status", write(n1, "UPDATE", "pods", "status", "ns", "a", claims, &own), "cannot update resource claim statues"},
		{"token for other's pod", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("b", "uid-of-b"), nil), "different node"},
		{"token for an earlier pod", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("a", "old"), nil), "does not match the UID"},
		{"token without uid", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("a", ""), nil), "without a uid"},
		{"token for no pod", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", &authenticationv1.TokenRequest{}, nil), "not bound to a pod"},
		{"own lease", write(n1, "CREATE", "leases", "", "kube-node-lease", "", lease("n1"), nil), ""},
		{"other's lease", write(n1, "CREATE", "leases", "", "kube-node-lease", "", lease("n2"), nil), "same name as the requesting node"},
		{"own drivers", write(n1, "CREATE", "csinodes", "", "", "", csiNode("n1"), nil), ""},
		{"other's drivers", write(n1, "CREATE", "csinodes", "", "", "", csiNode("n2"), nil), "same name as the requesting node"},
		{"other's drivers changed", write(n1, "UPDATE", "csinodes", "", "", "n2", csiNode("n2"), csiNode("n2")), "same name as the requesting node"},
		{"a claim that has grown", write(n1, "UPDATE", "persistentvolumeclaims", "status", "ns", "c", grown, claim), ""},
		{"a claim that is kept", write(n1, "UPDATE", "persistentvolumeclaims", "status", "ns", "c", taken, claim), "not allowed to update fields other than status.quantity and status.conditions"},
		{"lease elsewhere", write(n1, "UPDATE", "leases", "", "kube-system", "n1", lease("n1"), lease("n1")), "\"kube-node-lease\" system namespace"},
		{"somebody else", write(&user.DefaultInfo{Name: "jane"}, "DELETE", "pods", "", "ns", "b", nil, &other), ""},
		{"a node without a name", write(nodeUser(""), "DELETE", "pods", "", "ns", "a", nil, &own), "could not determine node"},
		{"other kinds", write(n1, "CREATE", "events", "", "ns", "e", &corev1.Event{}, nil), ""},
	}
	for _, c := range cases {
		expect(t, c.name, r.restrict(t.Context(), c.a), c.says)
	}
}

// audiences is a role that allows tokens for one audience.
type audiences string

func (a audiences) Authorize(_ context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	if asked.GetVerb() == "request-serviceaccounts-token-audience" && asked.GetAPIGroup() == "" && asked.GetResource() == string(a) && asked.GetName() == "sa" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// A mirror pod belongs to its node and to nobody else, and refers to nothing.
func TestRestrictionOfMirrorPods(t *testing.T) {
	r := NewRestriction(&cluster{nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-of-n1"}}}}, audiences(""))
	owner := func(change func(*metav1.OwnerReference)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.OwnerReferences[0]) }
	}
	volume := func(s corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{VolumeSource: s}} }
	}
	projection := func(p corev1.VolumeProjection) func(*corev1.Pod) {
		return volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{p}}})
	}
	const itself, reference = "owner reference set to itself", "can not create pods that reference "
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		says   string
	}{
		"nothing wrong":    {nil, ""},
		"no owner":         {func(p *corev1.Pod) { p.OwnerReferences = nil }, itself},
		"two owners":       {func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, p.OwnerReferences[0]) }, "single owner"},
		"foreign version":  {owner(func(o *metav1.OwnerReference) { o.APIVersion = "example.com/v1" }), itself},
		"DaemonSet":        {owner(func(o *metav1.OwnerReference) { o.Kind = "DaemonSet" }), itself},
		"another node":     {owner(func(o *metav1.OwnerReference) { o.Name = "n2" }), itself},
		"no controller":    {owner(func(o *metav1.OwnerReference) { o.Controller = nil }), "controller owner reference"},
		"false controller": {owner(func(o *metav1.OwnerReference) { o.Controller = new(false) }), "controller owner reference"},
		"blocks deletion":  {owner(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = new(true) }), "must not set blockOwnerDeletion"},
		"another's UID":    {owner(func(o *metav1.OwnerReference) { o.UID = "uid-of-a" }), "node n1 UID mismatch: expected uid-of-a got uid-of-n1"},
		"no UID":           {owner(func(o *metav1.OwnerReference) { o.UID = "" }), "UID mismatch"},
		"account":          {func(p *corev1.Pod) { p.Spec.ServiceAccountName = "x" }, reference + "serviceaccounts"},
		"pull secret":      {func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "x"}} }, reference + "secrets"},
		"device claim":     {func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{}} }, reference + "resourceclaims"},
		"config map":       {volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}), reference + "configmaps"},
		"secret":           {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}), reference + "secrets"},
		"CSI":              {volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}), reference + "csidrivers (via CSI volumes)"},
		"glusterfs":        {volume(corev1.VolumeSource{Glusterfs: &corev1.GlusterfsVolumeSource{}}), reference + "endpoints (via glusterFS volumes)"},
		"claim":            {volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}), reference + "persistentvolumeclaims"},
		"ephemeral":        {volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), reference + "persistentvolumeclaims (via ephemeral volumes)"},
		"Azure":            {volume(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{}}), reference + "secrets"},
		"projected secret": {projection(corev1.VolumeProjection{Secret: &corev1.SecretProjection{}}), reference + "secrets"},
		"projected map":    {projection(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{}}), reference + "configmaps"},
		"token":            {projection(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}), reference + "serviceaccounts (via projected volumes)"},
		"trust bundle":     {projection(corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}), reference + "clustertrustbundles"},
		"pod certificate":  {projection(corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}}), reference + "podcertificates"},
		"downward API":     {projection(corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}}), ""},
		"host path":        {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), ""},
	} {
		a := write(nodeUser("n1"), "CREATE", "pods", "", "ns", "m", mirrorPod("n1", c.change), nil)
		expect(t, name, r.Admit(t.Context(), a, nil), c.says)
	}
	gone := NewRestriction(&cluster{}, audiences(""))
	expect(t, "a node without its object", gone.Admit(t.Context(), write(nodeUser("n1"), "CREATE", "pods", "", "ns", "m", mirrorPod("n1", nil), nil), nil), "not found")
}

func expect(t *testing.T, name string, err error, says string) {
	t.Helper()
	if (err == nil) != (says == "") || (err != nil && !strings.Contains(err.Error(), says)) {
		t.Errorf("%s: %v, want %q", name, err, says)
	}
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		t.Errorf("%s: %v is neither Forbidden nor NotFound", name, err)
	}
}

func TestRestrictionOfNodes(t *testing.T) {
	node := func(name string, labels map[string]string, taints ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		for _, key := range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}
		return n
	}
	l := func(keys ...string) map[string]string {
		labels := map[string]string{}
		for _, key := range keys {
			labels[key] = "x"
		}
		return labels
	}
	withNetwork := func(cidr string) *corev1.Node {
		n := node("n1", nil)
		n.Spec.PodCIDR, n.Spec.PodCIDRs = cidr, []string{cidr}
		return n
	}
	withSource := func() *corev1.Node {
		n := node("n1", nil)
		n.Spec.ConfigSource = &corev1.NodeConfigSource{} //nolint:staticcheck // Deprecated, and still to be refused.
		return n
	}
	n1, r := nodeUser("n1"), NewRestriction(&cluster{}, audiences(""))
	cases := []struct {
		name     string
		obj, old *corev1.Node
		says     string
	}{
		{"itself", node("n1", l("kubernetes.io/hostname", "disk", "example.com/rack", "node.kubernetes.io/kind"), "dedicated"), nil, ""},
		{"another", node("n2", nil), nil, "is not allowed to modify node"},
		{"restricted label", node("n1", l("node-restriction.kubernetes.io/secure")), nil, "node-restriction.kubernetes.io/secure"},
		{"restricted label below", node("n1", l("x.node-restriction.kubernetes.io/secure")), nil, "not allowed to set the following labels"},
		{"role label", node("n1", l("node-role.kubernetes.io/control-plane")), nil, "node-role.kubernetes.io/control-plane"},
		{"update of own labels", node("n1", l("disk")), node("n1", nil), ""},
		{"update of taints", node("n1", nil), node("n1", nil, "dedicated"), "is not allowed to modify taints"},
		{"restricted label added", node("n1", l("node-restriction.kubernetes.io/a")), node("n1", nil), "is not allowed to modify labels"},
		{"restricted label removed", node("n1", nil), node("n1", l("node-restriction.kubernetes.io/a")), "is not allowed to modify labels"},
		{"restricted label kept", node("n1", l("node-restriction.kubernetes.io/a", "b")), node("n1", l("node-restriction.kubernetes.io/a")), ""},
		{"pod network of its own", withNetwork("10.9.0.0/24"), nil, "is not allowed to set its own podCIDR"},
		{"pod network of all", withNetwork("0.0.0.0/0"), nil, "is not allowed to set its own podCIDR"},
		{"pod network changed", withNetwork("10.9.0.0/24"), node("n1", nil), "is not allowed to modify its own podCIDR"},
		{"pod network removed", node("n1", nil), withNetwork("10.9.0.0/24"), "is not allowed to modify its own podCIDR"},
		{"pod network kept", withNetwork("10.9.0.0/24"), withNetwork("10.9.0.0/24"), ""},
		{"configuration", withSource(), nil, "is not allowed to create pods with a non-nil configSource"},
		{"configuration changed", withSource(), node("n1", nil), "is not allowed to update configSource to a new non-nil configSource"},
		{"configuration kept", withSource(), withSource(), ""},
		{"role kept", node("n1", l("node-role.kubernetes.io/worker")), node("n1", l("node-role.kubernetes.io/worker")), ""},
	}
	for _, c := range cases {
		operation, old, name := admission.Create, runtime.Object(nil), ""
		if c.old != nil {
			operation, old, name = admission.Update, c.old, c.obj.Name
		}
		expect(t, c.name, r.restrict(t.Context(), write(n1, operation, "nodes", "", "", name, c.obj, old)), c.says)
	}
	expect(t, "stale pod network in a report of the status", r.restrict(t.Context(), write(n1, admission.Update, "nodes", "status", "", "n1", node("n1", nil), withNetwork("10.9.0.0/24"))), "")
	gate := nodestartup.TaintKey
	closes := write(n1, admission.Update, "nodes", "status", "", "n1", node("n1", nil, gate), node("n1", nil))
	expect(t, "the gate in a report of the status", r.restrict(t.Context(), closes), "")
	more := write(n1, admission.Update, "nodes", "status", "", "n1", node("n1", nil, gate, "more"), node("n1", nil))
	expect(t, "more than the gate in a report", r.restrict(t.Context(), more), "is not allowed to modify taints")
	opens := write(n1, admission.Update, "nodes", "", "", "n1", node("n1", nil), node("n1", nil, gate))
	expect(t, "the gate in an update", r.restrict(t.Context(), opens), "is not allowed to modify taints")
	owned := node("n1", nil)
	owned.OwnerReferences = []metav1.OwnerReference{{Name: "x"}}
	expect(t, "owner", r.restrict(t.Context(), write(n1, admission.Update, "nodes", "status", "", "n1", owned, node("n1", nil))), "ownerReferences")
	drained := node("n1", nil)
	drained.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDrained, Status: corev1.ConditionTrue}}
	expect(t, "its own maintenance", r.restrict(t.Context(), write(n1, admission.Update, "nodes", "status", "", "n1", drained, node("n1", nil))), "")
	drained = drained.DeepCopy()
	drained.Name = "n2"
	expect(t, "another's maintenance", r.restrict(t.Context(), write(n1, admission.Update, "nodes", "status", "", "n2", drained, node("n2", nil))), "is not allowed to modify node")
	expect(t, "delete another", r.restrict(t.Context(), write(n1, admission.Delete, "nodes", "", "", "n2", nil, node("n2", nil))), "is not allowed to modify node")
}

// A Node or pod with a finalizer of its node's could not be deleted when the node is revoked.
func TestNodesAddNoFinalizers(t *testing.T) {
	n1 := nodeUser("n1")
	held := metav1.ObjectMeta{Name: "n1", Namespace: "ns", Finalizers: []string{"example.com/held"}}
	free := metav1.ObjectMeta{Name: "n1", Namespace: "ns"}
	pod := func(m metav1.ObjectMeta) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{NodeName: "n1"}}
	}
	lease := &coordinationv1.Lease{ObjectMeta: held}
	lease.Namespace = "kube-node-lease"
	r := NewRestriction(&cluster{}, audiences(""))
	const says = "is not allowed to add finalizers: example.com/held"
	for _, c := range []struct {
		name, resource, subresource string
		now, old                    runtime.Object
		says                        string
	}{
		{"a new Node", "nodes", "", &corev1.Node{ObjectMeta: held}, nil, says},
		{"its Node", "nodes", "", &corev1.Node{ObjectMeta: held}, &corev1.Node{ObjectMeta: free}, says},
		{"its Node, by the status", "nodes", "status", &corev1.Node{ObjectMeta: held}, &corev1.Node{ObjectMeta: free}, says},
		{"a pod, by the status", "pods", "status", pod(held), pod(free), says},
		{"its Lease", "leases", "", lease, nil, says},
		{"one that there is", "nodes", "", &corev1.Node{ObjectMeta: held}, &corev1.Node{ObjectMeta: held}, ""},
		{"one that goes", "nodes", "", &corev1.Node{ObjectMeta: free}, &corev1.Node{ObjectMeta: held}, ""},
	} {
		operation := admission.Create
		if c.old != nil {
			operation = admission.Update
		}
		expect(t, c.name, r.restrict(t.Context(), write(n1, operation, c.resource, c.subresource, "kube-node-lease", "n1", c.now, c.old)), c.says)
	}
	if err := r.restrict(t.Context(), write(nodeUser("n1"), admission.Delete, "nodes", "", "", "n1", nil, &corev1.Node{ObjectMeta: held})); err != nil {
		t.Errorf("a node that goes: %v", err)
	}
}
