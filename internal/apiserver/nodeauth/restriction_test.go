package nodeauth

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

func write(who user.Info, operation admission.Operation, resource, subresource, namespace, name string, obj, old runtime.Object) admission.Attributes {
	gvr := corev1.SchemeGroupVersion.WithResource(resource)
	switch resource {
	case "leases":
		gvr = coordinationv1.SchemeGroupVersion.WithResource(resource)
	case "csinodes":
		gvr = storagev1.SchemeGroupVersion.WithResource(resource)
	}
	return admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{Kind: "X"}, namespace, name, gvr, subresource, operation, nil, false, who)
}

func csiNode(name string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func mirrorPod(node string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}, Spec: corev1.PodSpec{NodeName: node}}
	if change != nil {
		change(p)
	}
	return p
}

func TestRestrictionOfPods(t *testing.T) {
	own, other := pod("n1", "a"), pod("n2", "b")
	relabelled := own.DeepCopy()
	relabelled.Labels = map[string]string{"app": "x"}
	r := NewRestriction(&cluster{pods: []corev1.Pod{own, other}})
	n1 := nodeUser("n1")
	token := func(name, uid string) *authenticationv1.TokenRequest {
		return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(uid)}}}
	}
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
		{"mirror pod of a daemon set", write(n1, "CREATE", "pods", "", "ns", "m", mirrorPod("n1", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "n1"}}
		}), nil), "owner reference set to itself"},
		{"own pod deleted", write(n1, "DELETE", "pods", "", "ns", "a", nil, &own), ""},
		{"other's pod deleted", write(n1, "DELETE", "pods", "", "ns", "b", nil, &other), "can only delete pods"},
		{"pod's spec", write(n1, "UPDATE", "pods", "", "ns", "a", &own, &own), "unexpected operation"},
		{"own status", write(n1, "UPDATE", "pods", "status", "ns", "a", &own, &own), ""},
		{"other's status", write(n1, "UPDATE", "pods", "status", "ns", "b", &other, &other), "can only update pod status"},
		{"status that takes a pod over", write(n1, "UPDATE", "pods", "status", "ns", "b", &own, &other), "can only update pod status"},
		{"labels through status", write(n1, "UPDATE", "pods", "status", "ns", "a", relabelled, &own), "cannot update labels"},
		{"own eviction", write(n1, "CREATE", "pods", "eviction", "ns", "a", eviction, nil), ""},
		{"other's eviction", write(n1, "CREATE", "pods", "eviction", "ns", "b", eviction, nil), "can only evict pods"},
		{"eviction of nothing", write(n1, "CREATE", "pods", "eviction", "ns", "gone", eviction, nil), "not found"},
		{"binding", write(n1, "CREATE", "pods", "binding", "ns", "a", &corev1.Binding{}, nil), "unexpected pod subresource"},
		{"token for its pod", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("a", "uid-of-a"), nil), ""},
		{"token for other's pod", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("b", "uid-of-b"), nil), "different node"},
		{"token for an earlier pod", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("a", "old"), nil), "does not match the UID"},
		{"token without uid", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", token("a", ""), nil), "without a uid"},
		{"token for no pod", write(n1, "CREATE", "serviceaccounts", "token", "ns", "sa", &authenticationv1.TokenRequest{}, nil), "not bound to a pod"},
		{"own lease", write(n1, "CREATE", "leases", "", "kube-node-lease", "", lease("n1"), nil), ""},
		{"other's lease", write(n1, "CREATE", "leases", "", "kube-node-lease", "", lease("n2"), nil), "same name as the requesting node"},
		{"own drivers", write(n1, "CREATE", "csinodes", "", "", "", csiNode("n1"), nil), ""},
		{"other's drivers", write(n1, "CREATE", "csinodes", "", "", "", csiNode("n2"), nil), "same name as the requesting node"},
		{"other's drivers changed", write(n1, "UPDATE", "csinodes", "", "", "n2", csiNode("n2"), csiNode("n2")), "same name as the requesting node"},
		{"lease elsewhere", write(n1, "UPDATE", "leases", "", "kube-system", "n1", lease("n1"), lease("n1")), "same name as the requesting node"},
		{"somebody else", write(&user.DefaultInfo{Name: "jane"}, "DELETE", "pods", "", "ns", "b", nil, &other), ""},
		{"a node without a name", write(nodeUser(""), "DELETE", "pods", "", "ns", "a", nil, &own), "could not determine node"},
		{"other kinds", write(n1, "CREATE", "events", "", "ns", "e", &corev1.Event{}, nil), ""},
	}
	for _, c := range cases {
		expect(t, c.name, r.Validate(t.Context(), c.a, nil), c.says)
	}
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
	n1, r := nodeUser("n1"), NewRestriction(&cluster{})
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
		{"role kept", node("n1", l("node-role.kubernetes.io/worker")), node("n1", l("node-role.kubernetes.io/worker")), ""},
	}
	for _, c := range cases {
		operation, old, name := admission.Create, runtime.Object(nil), ""
		if c.old != nil {
			operation, old, name = admission.Update, c.old, c.obj.Name
		}
		expect(t, c.name, r.Validate(t.Context(), write(n1, operation, "nodes", "", "", name, c.obj, old), nil), c.says)
	}
	owned := node("n1", nil)
	owned.OwnerReferences = []metav1.OwnerReference{{Name: "x"}}
	expect(t, "owner", r.Validate(t.Context(), write(n1, admission.Update, "nodes", "status", "", "n1", owned, node("n1", nil)), nil), "ownerReferences")
	expect(t, "delete another", r.Validate(t.Context(), write(n1, admission.Delete, "nodes", "", "", "n2", nil, node("n2", nil)), nil), "is not allowed to modify node")
}
