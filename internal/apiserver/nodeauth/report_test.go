package nodeauth

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

// What is sent to a node goes to the address that it reports: it may not name those of others.
func TestAddressesThatNodesReport(t *testing.T) {
	ofOperator := []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	for _, c := range []struct {
		from, reported string
		networks       []netip.Prefix
		ok             bool
	}{
		{"203.0.113.9:4711", "10.1.2.3", nil, true},
		{"203.0.113.9:4711", "100.64.1.2", nil, true},
		{"203.0.113.9:4711", "203.0.113.9", nil, true},
		{"203.0.113.9:4711", "8.8.8.8", nil, false},
		{"203.0.113.9:4711", "::ffff:8.8.8.8", nil, false},
		{"203.0.113.9:4711", "127.0.0.1", nil, false},
		{"203.0.113.9:4711", "169.254.169.254", nil, false},
		{"127.0.0.1:4711", "127.0.0.5", nil, true},
		{"203.0.113.9:4711", "2001:db8::1", nil, true},
		{"203.0.113.9:4711", "fe80::1", nil, false},
		{"203.0.113.9:4711", "::1", nil, false},
		{"", "8.8.8.8", nil, false},
		{"203.0.113.9:4711", "198.51.100.7", ofOperator, true},
		{"203.0.113.9:4711", "203.0.113.9", ofOperator, false},
		{"203.0.113.9:4711", "10.1.2.3", ofOperator, false},
		{"203.0.113.9:4711", "2001:db8::1", ofOperator, true},
	} {
		r := NewRestriction(&cluster{}, audiences(""), c.networks...)
		before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		now := before.DeepCopy()
		now.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: c.reported}, {Type: corev1.NodeHostName, Address: "8.8.8.8"}}
		says := ""
		if !c.ok {
			says = "is not allowed to report the address"
		}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/", nil)
		request.RemoteAddr = c.from
		WithClient(http.HandlerFunc(func(_ http.ResponseWriter, asked *http.Request) {
			name := c.reported + " from " + c.from
			update := write(nodeUser("n1"), admission.Update, "nodes", "status", "", "n1", now, before)
			expect(t, name, r.restrict(asked.Context(), update), says)
			create := write(nodeUser("n1"), admission.Create, "nodes", "", "", "", now, nil)
			expect(t, name+", new", r.restrict(asked.Context(), create), says)
			again := write(nodeUser("n1"), admission.Update, "nodes", "status", "", "n1", now, now)
			expect(t, name+", as before", r.restrict(asked.Context(), again), "")
		})).ServeHTTP(httptest.NewRecorder(), request)
	}
}

// What a node reports has an end, and what others have made large does not hold it up.
func TestReportsOfNodesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 300<<10)
	meta := metav1.ObjectMeta{Name: "n1"}
	small := &corev1.Node{ObjectMeta: meta}
	many := small.DeepCopy()
	for i := range 101 {
		many.Status.Addresses = append(many.Status.Addresses, corev1.NodeAddress{Type: "x", Address: strconv.Itoa(i)})
	}
	image := small.DeepCopy()
	image.Status.Images = []corev1.ContainerImage{{Names: []string{long}}}
	labelled := small.DeepCopy()
	labelled.Labels = map[string]string{"a": long}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "n1", Containers: make([]corev1.Container, 2)}}
	told := pod.DeepCopy()
	told.Status.Message = long
	fair := pod.DeepCopy()
	fair.Status.Message = long[:90<<10]
	lease := func(holder string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: "kube-node-lease"}}
		l.Spec.HolderIdentity = &holder
		return l
	}
	r := NewRestriction(&cluster{}, audiences(""))
	for _, c := range []struct {
		name, resource, subresource string
		now, old                    runtime.Object
		says                        string
	}{
		{"many addresses", "nodes", "status", many, small, "101 addresses"},
		{"many addresses, new", "nodes", "", many, nil, "101 addresses"},
		{"a long image", "nodes", "status", image, small, "bytes as the status of a Node"},
		{"a long label", "nodes", "", labelled, small, "bytes as the metadata of a Node"},
		{"somebody else's label", "nodes", "status", labelled, labelled, ""},
		{"a long message of a pod", "pods", "status", told, pod, "bytes as the status of a pod"},
		{"a message for two containers", "pods", "status", fair, pod, ""},
		{"a long lease", "leases", "", lease(long), lease("n1"), "bytes as a X"},
		{"a lease", "leases", "", lease("n2"), lease("n1"), ""},
	} {
		operation := admission.Create
		if c.old != nil {
			operation = admission.Update
		}
		a := write(nodeUser("n1"), operation, c.resource, c.subresource, "kube-node-lease", "n1", c.now, c.old)
		expect(t, c.name, r.restrict(t.Context(), a), c.says)
	}
}
