package plan

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func aService(edit ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	s.Spec.ClusterIP, s.Spec.IPFamilies = "10.96.0.7", []corev1.IPFamily{corev1.IPv4Protocol}
	s.Spec.Ports = []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}}
	for _, e := range edit {
		e(s)
	}
	return s
}

func aPod(name, ip string, ready bool, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	p.Spec.NodeName, p.Status.PodIP = "node-1", ip
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	for _, e := range edit {
		e(p)
	}
	return p
}

// text writes subsets as ready|not ready:ports.
func text(subsets []corev1.EndpointSubset) string {
	var out []string
	for _, s := range subsets {
		var ready, not, ports []string
		for _, a := range s.Addresses {
			ready = append(ready, a.IP)
		}
		for _, a := range s.NotReadyAddresses {
			not = append(not, a.IP)
		}
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprint(p.Port))
		}
		out = append(out, strings.Join(ready, ",")+"|"+strings.Join(not, ",")+":"+strings.Join(ports, ","))
	}
	return strings.Join(out, " ")
}

func named(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("http") }

func port(number int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: number, Protocol: corev1.ProtocolTCP}}}}
	}
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func TestSubsets(t *testing.T) {
	sidecar := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 15000, Protocol: corev1.ProtocolTCP}}}}
	}
	for _, c := range []struct {
		name string
		svc  *corev1.Service
		pods []*corev1.Pod
		want string
	}{
		{"ready and not, sorted", aService(), []*corev1.Pod{aPod("b", "10.0.0.2", true), aPod("c", "10.0.0.3", false), aPod("a", "10.0.0.1", true)}, "10.0.0.1,10.0.0.2|10.0.0.3:8080"},
		{"without an address, ended, going", aService(), []*corev1.Pod{aPod("a", "", true),
			aPod("b", "10.0.0.2", true, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), aPod("c", "10.0.0.3", true, terminating)}, ""},
		{"published all the same", aService(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }),
			[]*corev1.Pod{aPod("a", "10.0.0.1", false), aPod("b", "10.0.0.2", true, terminating)}, "10.0.0.1,10.0.0.2|:8080"},
		{"a named port is each pod's own", aService(named),
			[]*corev1.Pod{aPod("a", "10.0.0.1", true, port(8080)), aPod("b", "10.0.0.2", true, port(9090)), aPod("c", "10.0.0.3", true), aPod("d", "10.0.0.4", true, sidecar)},
			"10.0.0.4|:15000 10.0.0.1|:8080 10.0.0.2|:9090"},
		{"headless without ports", aService(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.Ports = "None", nil }), []*corev1.Pod{aPod("a", "10.0.0.1", true)}, "10.0.0.1|:"},
		{"the other family", aService(func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }),
			[]*corev1.Pod{aPod("a", "10.0.0.1", true), aPod("b", "10.0.0.2", true, func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.2"}, {IP: "fd00::2"}} })}, "fd00::2|:8080"},
	} {
		if got := text(Subsets(c.svc, c.pods)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestEndpointsAreWrittenOnlyWhenTheyChange(t *testing.T) {
	svc := aService(func(s *corev1.Service) { s.Labels = map[string]string{"app": "web"} })
	pods := []*corev1.Pod{aPod("a", "10.0.0.1", true, func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "a", "web" })}
	first, changed := Endpoints(svc, pods, nil)
	if !changed || text(first.Subsets) != "10.0.0.1|:8080" || first.Labels["app"] != "web" || !Ours(first) || first.Subsets[0].Addresses[0].Hostname != "a" {
		t.Fatalf("first: %v, %+v", changed, first)
	}
	if _, changed = Endpoints(svc, pods, first); changed {
		t.Error("the same again is a change")
	}
	foreign := first.DeepCopy()
	foreign.Subsets[0].Addresses[0].IP, foreign.ResourceVersion, foreign.Annotations = "10.9.9.9", "7", map[string]string{"mine": "yes"}
	back, changed := Endpoints(svc, pods, foreign)
	if !changed || text(back.Subsets) != "10.0.0.1|:8080" || back.ResourceVersion != "7" || back.Annotations["mine"] != "yes" || foreign.Subsets[0].Addresses[0].IP != "10.9.9.9" {
		t.Errorf("after somebody else's change: %v, %+v", changed, back)
	}
}

func TestTooManyForOneObject(t *testing.T) {
	pods := []*corev1.Pod{aPod("z", "10.1.0.0", false)}
	for i := range maxInEndpoints {
		pods = append(pods, aPod(fmt.Sprintf("p%d", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), true))
	}
	e, _ := Endpoints(aService(), pods, nil)
	if n := len(e.Subsets[0].Addresses); n != maxInEndpoints || len(e.Subsets[0].NotReadyAddresses) != 0 || e.Annotations[overCapacity] != truncated {
		t.Errorf("%d ready, %d not, annotations %v; want the ready ones", n, len(e.Subsets[0].NotReadyAddresses), e.Annotations)
	}
	if e, _ = Endpoints(aService(), pods[:3], e); e.Annotations[overCapacity] != "" {
		t.Errorf("with few: annotations %v", e.Annotations)
	}
}

func handWritten(ips ...string) *corev1.Endpoints {
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db", UID: "e", Labels: map[string]string{"app": "db"},
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "note": "x"}}}
	s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "sql", Port: 5432, Protocol: corev1.ProtocolTCP}}}
	for _, ip := range ips {
		s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: ip})
	}
	e.Subsets = []corev1.EndpointSubset{s}
	return e
}

func TestMirrored(t *testing.T) {
	plain := aService()
	chosen := aService(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": "b"} })
	skipped, elected := handWritten("10.0.0.1"), handWritten("10.0.0.1")
	skipped.Labels[discoveryv1.LabelSkipMirror] = "true"
	elected.Annotations[electionLease] = "{}"
	for _, c := range []struct {
		name string
		svc  *corev1.Service
		e    *corev1.Endpoints
		want bool
	}{
		{"hand-written", plain, handWritten("10.0.0.1"), true}, {"of a selector", chosen, handWritten("10.0.0.1"), false}, {"no service", nil, handWritten("10.0.0.1"), false},
		{"no endpoints", plain, nil, false}, {"not wanted", plain, skipped, false}, {"an election", plain, elected, false},
	} {
		if got := Mirrored(c.svc, c.e); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func addressesIn(s *discoveryv1.EndpointSlice) string {
	var out []string
	for _, e := range s.Endpoints {
		out = append(out, e.Addresses...)
	}
	return strings.Join(out, " ")
}

func TestMirrorSlices(t *testing.T) {
	c := MirrorSlices(handWritten("10.0.0.2", "10.0.0.1", "fd00::1"), nil)
	if len(c.Create) != 2 || len(c.Update)+len(c.Delete) != 0 {
		t.Fatalf("at first: %+v; want a slice for each family", c)
	}
	s := c.Create[0]
	if s.AddressType != discoveryv1.AddressTypeIPv4 || len(s.Endpoints) != 2 || s.Endpoints[0].Addresses[0] != "10.0.0.1" || *s.Ports[0].Port != 5432 ||
		s.Labels[discoveryv1.LabelServiceName] != "db" || s.Labels[discoveryv1.LabelManagedBy] != Mirror || s.Labels["app"] != "db" ||
		len(s.Annotations) != 1 || s.OwnerReferences[0].UID != "e" {
		t.Errorf("the slice is %+v", s)
	}
	if again := MirrorSlices(handWritten("10.0.0.1", "10.0.0.2", "fd00::1"), c.Create); len(again.Create)+len(again.Update)+len(again.Delete) != 0 {
		t.Errorf("the same in another order: %+v; want nothing", again)
	}
	next := MirrorSlices(handWritten("10.0.0.3"), c.Create)
	if len(next.Create) != 0 || len(next.Update) != 1 || next.Update[0].Endpoints[0].Addresses[0] != "10.0.0.3" || len(next.Delete) != 1 || s.Endpoints[0].Addresses[0] != "10.0.0.1" {
		t.Errorf("changed: %+v; want one slice updated, the other family's deleted, and the old one untouched", next)
	}
	if old := MirrorSlices(handWritten("010.0.0.03", "::ffff:10.0.0.4"), nil); len(old.Create) != 1 || addressesIn(old.Create[0]) != "10.0.0.3 10.0.0.4" {
		t.Errorf("addresses in an old form: %+v", old)
	}
	if gone := MirrorSlices(nil, c.Create); len(gone.Delete) != 2 || len(gone.Create)+len(gone.Update) != 0 {
		t.Errorf("gone: %+v; want both deleted", gone)
	}
	split := handWritten("10.0.0.1")
	split.Subsets = append(split.Subsets, corev1.EndpointSubset{NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.0.0.9", Hostname: "h"}}, Ports: split.Subsets[0].Ports})
	c = MirrorSlices(split, nil)
	if len(c.Create) != 1 || *c.Create[0].Endpoints[1].Conditions.Ready || *c.Create[0].Endpoints[1].Hostname != "h" {
		t.Errorf("two subsets with the same ports: %+v; want one slice, the second endpoint not ready", c.Create)
	}
}
