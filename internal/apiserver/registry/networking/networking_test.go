package networking

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// expect fails unless there is exactly the one error, or none for an empty text.
func expect(t *testing.T, what string, errs field.ErrorList, want string) {
	t.Helper()
	if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want)) {
		t.Errorf("%s: %v, want %s", what, errs, want)
	}
}

func backend(change func(*networkingv1.IngressBackend)) networkingv1.IngressBackend {
	b := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	if change != nil {
		change(&b)
	}
	return b
}

func pathOf(text string, kind networkingv1.PathType) networkingv1.HTTPIngressPath {
	return networkingv1.HTTPIngressPath{Path: text, PathType: &kind, Backend: backend(nil)}
}

func rule(host string, paths ...networkingv1.HTTPIngressPath) networkingv1.IngressSpec {
	return networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}}}}}
}

func TestIngress(t *testing.T) {
	only := func(change func(*networkingv1.IngressBackend)) networkingv1.IngressSpec {
		b := backend(change)
		return networkingv1.IngressSpec{DefaultBackend: &b}
	}
	for name, c := range map[string]struct {
		spec networkingv1.IngressSpec
		want string
	}{
		"good":            {rule("*.example.com", pathOf("/a", "Prefix"), pathOf("", "ImplementationSpecific")), ""},
		"nothing":         {networkingv1.IngressSpec{}, "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"},
		"an address":      {rule("10.0.0.1", pathOf("/", "Exact")), `spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`},
		"a bad wildcard":  {rule("a.*.com", pathOf("/", "Exact")), "spec.rules[0].host: Invalid value"},
		"no paths":        {rule("a.com"), "spec.rules[0].http.paths: Required value"},
		"no type":         {rule("a.com", networkingv1.HTTPIngressPath{Backend: backend(nil)}), "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"},
		"unknown type":    {rule("a.com", pathOf("/", "Regex")), `spec.rules[0].http.paths[0].pathType: Unsupported value: "Regex": supported values: "Exact", "ImplementationSpecific", "Prefix"`},
		"relative":        {rule("a.com", pathOf("a", "Exact")), `spec.rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path`},
		"doubled slash":   {rule("a.com", pathOf("/a//b", "Prefix")), `spec.rules[0].http.paths[0].path: Invalid value: "/a//b": must not contain '//'`},
		"upwards":         {rule("a.com", pathOf("/a/..", "Prefix")), `spec.rules[0].http.paths[0].path: Invalid value: "/a/..": cannot end with '/..'`},
		"no backend":      {only(func(b *networkingv1.IngressBackend) { b.Service = nil }), `spec.defaultBackend: Invalid value: "": resource or service backend is required`},
		"both backends":   {only(func(b *networkingv1.IngressBackend) { b.Resource = &corev1.TypedLocalObjectReference{} }), `spec.defaultBackend: Invalid value: "": cannot set both resource and service backends`},
		"no port":         {only(func(b *networkingv1.IngressBackend) { b.Service.Port.Number = 0 }), "spec.defaultBackend: Required value: port name or number is required"},
		"both ports":      {only(func(b *networkingv1.IngressBackend) { b.Service.Port.Name = "http" }), `spec.defaultBackend: Invalid value: "": cannot set both port name & port number`},
		"a port too high": {only(func(b *networkingv1.IngressBackend) { b.Service.Port.Number = 70000 }), "spec.defaultBackend.service.port.number: Invalid value: 70000"},
		"no service":      {only(func(b *networkingv1.IngressBackend) { b.Service.Name = "" }), "spec.defaultBackend.service.name: Required value"},
		"a bucket": {only(func(b *networkingv1.IngressBackend) {
			b.Service, b.Resource = nil, &corev1.TypedLocalObjectReference{APIGroup: ptr.To("example.com"), Kind: "Bucket", Name: "b"}
		}), ""},
		"a bucket without a name": {only(func(b *networkingv1.IngressBackend) {
			b.Service, b.Resource = nil, &corev1.TypedLocalObjectReference{Kind: "Bucket"}
		}), "spec.defaultBackend.resource.name: Required value: name is required"},
		"a secret's name": {func() networkingv1.IngressSpec {
			s := only(nil)
			s.TLS = []networkingv1.IngressTLS{{Hosts: []string{"a.com"}, SecretName: "Not/A/Name"}}
			return s
		}(), "spec.tls[0].secretName: Invalid value"},
	} {
		expect(t, name, ValidateIngress(&networkingv1.Ingress{Spec: c.spec}), c.want)
	}
	twice := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{classAnnotation: "a"}}, Spec: only(nil)}
	twice.Spec.IngressClassName = ptr.To("b")
	expect(t, "two classes", ValidateIngress(twice), "annotations.kubernetes.io/ingress.class: Invalid value: \"a\": must match `ingressClassName` when both are specified")
	twice.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "10.0.0"}}
	expect(t, "an address", validateAddresses(twice), `status.loadBalancer.ingress[0].ip: Invalid value: "10.0.0": must be a valid IP address`)

	shown := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "i"}, Spec: rule("a.com")}
	for _, host := range []string{"b.com", "c.com", "d.com"} {
		shown.Spec.Rules = append(shown.Spec.Rules, networkingv1.IngressRule{Host: host})
	}
	shown.Spec.TLS = []networkingv1.IngressTLS{{}}
	shown.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "10.0.0.2"}, {Hostname: "a.b"}, {IP: "10.0.0.2"}}
	out, err := ingressTable.ConvertToTable(t.Context(), shown, nil)
	if err != nil || fmt.Sprint(out.Rows[0].Cells) != "[i <none> a.com,b.com,c.com + 1 more... 10.0.0.2,a.b 80, 443 <unknown>]" {
		t.Errorf("%v, %v", out, err)
	}
}

func TestIngressClass(t *testing.T) {
	reference := func(change func(*networkingv1.IngressClassParametersReference)) *networkingv1.IngressClassParametersReference {
		r := &networkingv1.IngressClassParametersReference{APIGroup: ptr.To("example.com"), Kind: "Config", Name: "c", Scope: ptr.To("Cluster")}
		change(r)
		return r
	}
	for name, c := range map[string]struct {
		controller string
		parameters *networkingv1.IngressClassParametersReference
		want       string
	}{
		"good":           {"example.com/web", reference(func(*networkingv1.IngressClassParametersReference) {}), ""},
		"no controller":  {"", nil, "spec.controller: Required value"},
		"a bare name":    {"web", nil, `spec.controller: Invalid value: "web"`},
		"a long name":    {"example.com/" + strings.Repeat("a", 250), nil, "spec.controller: Too long: may not be more than 250 bytes"},
		"no namespace":   {"example.com/web", reference(func(r *networkingv1.IngressClassParametersReference) { r.Scope = ptr.To("Namespace") }), "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"},
		"a namespace":    {"example.com/web", reference(func(r *networkingv1.IngressClassParametersReference) { r.Namespace = ptr.To("a") }), "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"},
		"another scope":  {"example.com/web", reference(func(r *networkingv1.IngressClassParametersReference) { r.Scope = ptr.To("World") }), `spec.parameters.scope: Unsupported value: "World": supported values: "Cluster", "Namespace"`},
		"without a kind": {"example.com/web", reference(func(r *networkingv1.IngressClassParametersReference) { r.Kind = "" }), "spec.parameters.kind: Required value: kind is required"},
	} {
		expect(t, name, ValidateClass(&networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: c.controller, Parameters: c.parameters}}), c.want)
	}
}

func TestNetworkPolicy(t *testing.T) {
	port := func(p intstr.IntOrString, end *int32) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &p, EndPort: end}}}}}
	}
	peer := func(p networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{p}}}}
	}
	block := func(cidr string, except ...string) networkingv1.NetworkPolicySpec {
		return peer(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}})
	}
	for name, c := range map[string]struct {
		spec networkingv1.NetworkPolicySpec
		want string
	}{
		"ports":          {port(intstr.FromInt32(80), ptr.To[int32](90)), ""},
		"a block":        {block("10.0.0.0/8", "10.1.0.0/16"), ""},
		"a port":         {port(intstr.FromInt32(0), nil), "spec.ingress[0].ports[0].port: Invalid value: 0"},
		"a name":         {port(intstr.FromString("Not a name"), nil), "spec.ingress[0].ports[0].port: Invalid value"},
		"ends too early": {port(intstr.FromInt32(80), ptr.To[int32](79)), "spec.ingress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`"},
		"names have no end": {port(intstr.FromString("web"), ptr.To[int32](79)),
			"spec.ingress[0].ports[0].endPort: Invalid value: 79: may not be specified when `port` is non-numeric"},
		"nobody": {peer(networkingv1.NetworkPolicyPeer{}), "spec.egress[0].to[0]: Required value: must specify a peer"},
		"two peers": {peer(networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}, IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}),
			"spec.egress[0].to[0]: Forbidden: may not specify both ipBlock and another peer"},
		"no block":        {block(""), "spec.egress[0].to[0].ipBlock.cidr: Required value"},
		"not a block":     {block("10.0.0.0"), "spec.egress[0].to[0].ipBlock.cidr: Invalid value"},
		"outside":         {block("10.0.0.0/8", "11.0.0.0/16"), "spec.egress[0].to[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`"},
		"the whole block": {block("10.0.0.0/8", "10.0.0.0/8"), "spec.egress[0].to[0].ipBlock.except[0]"},
		"unknown type":    {networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Both"}}, `spec.policyTypes[0]: Unsupported value: "Both": supported values: "Egress", "Ingress"`},
		"three types":     {networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Egress", "Ingress", "Egress"}}, "spec.policyTypes: Invalid value"},
		"a protocol": {networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.Protocol("ICMP"))}}}}},
			`spec.ingress[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"`},
	} {
		expect(t, name, ValidatePolicy(&networkingv1.NetworkPolicy{Spec: c.spec}), c.want)
	}
	p := &networkingv1.NetworkPolicy{Spec: block("10.0.0.0/8")}
	p.Spec.Egress[0].Ports = []networkingv1.NetworkPolicyPort{{}}
	SetPolicyDefaults(p)
	if fmt.Sprintf("%v %v", p.Spec.PolicyTypes, *p.Spec.Egress[0].Ports[0].Protocol) != "[Ingress Egress] TCP" {
		t.Errorf("the defaults are %v", p.Spec)
	}
}

func TestServiceCIDR(t *testing.T) {
	for name, c := range map[string]struct {
		cidrs []string
		want  string
	}{
		"one":            {[]string{"10.97.0.0/16"}, ""},
		"one of each":    {[]string{"10.97.0.0/16", "fd00::/108"}, ""},
		"none":           {nil, "spec.cidrs: Required value: at least one CIDR required"},
		"three":          {[]string{"10.97.0.0/16", "fd00::/108", "10.98.0.0/16"}, `spec.cidrs: Invalid value: {"cidrs":["10.97.0.0/16","fd00::/108","10.98.0.0/16"]}: may only hold up to 2 values`},
		"two of one":     {[]string{"10.97.0.0/16", "10.98.0.0/16"}, `spec.cidrs: Invalid value: {"cidrs":["10.97.0.0/16","10.98.0.0/16"]}: may specify no more than one IP for each IP family`},
		"no network":     {[]string{"10.97.0.0"}, `spec.cidrs[0]: Invalid value: "10.97.0.0": must be a valid CIDR value`},
		"bits of a host": {[]string{"10.97.0.1/16"}, `spec.cidrs[0]: Invalid value: "10.97.0.1/16": must not have bits set beyond the prefix length`},
	} {
		expect(t, name, ValidateServiceCIDR(&networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: c.cidrs}}), c.want)
	}
}

func TestIPAddress(t *testing.T) {
	ref := func(change func(*networkingv1.ParentReference)) *networkingv1.ParentReference {
		r := &networkingv1.ParentReference{Group: "gateways.example.com", Resource: "gateways", Namespace: "a", Name: "g"}
		change(r)
		return r
	}
	for name, c := range map[string]struct {
		parent *networkingv1.ParentReference
		want   string
	}{
		"whole":       {ref(func(*networkingv1.ParentReference) {}), ""},
		"the core":    {ref(func(r *networkingv1.ParentReference) { r.Group, r.Namespace = "", "" }), ""},
		"none":        {nil, "spec.parentRef: Required value"},
		"a group":     {ref(func(r *networkingv1.ParentReference) { r.Group = "A!" }), `spec.parentRef.group: Invalid value: "A!"`},
		"no resource": {ref(func(r *networkingv1.ParentReference) { r.Resource = "" }), "spec.parentRef.resource: Required value"},
		"a resource":  {ref(func(r *networkingv1.ParentReference) { r.Resource = "a/b" }), `spec.parentRef.resource: Invalid value: "a/b": may not contain '/'`},
		"no name":     {ref(func(r *networkingv1.ParentReference) { r.Name = "" }), "spec.parentRef.name: Required value"},
		"a name":      {ref(func(r *networkingv1.ParentReference) { r.Name = ".." }), `spec.parentRef.name: Invalid value: "..": may not be '..'`},
		"a namespace": {ref(func(r *networkingv1.ParentReference) { r.Namespace = "a%b" }), `spec.parentRef.namespace: Invalid value: "a%b": may not contain '%'`},
	} {
		expect(t, name, ValidateAddress(&networkingv1.IPAddress{Spec: networkingv1.IPAddressSpec{ParentRef: c.parent}}), c.want)
	}
	for name, want := range map[string]string{
		"10.96.0.1": "", "fd00::1": "", "10.96.0.01": "must not have leading 0s", "FD00::1": "must be in canonical form", "web": "must be a valid IP address",
	} {
		if got := strings.Join(addressName(name, false), "; "); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("the name %s: %q, want %q", name, got, want)
		}
	}
	for want, r := range map[string]*networkingv1.ParentReference{
		"<none>": nil, "services/default/web": {Resource: "services", Namespace: "default", Name: "web"}, "gateways.example.com/g": {Group: "example.com", Resource: "gateways", Name: "g"},
	} {
		if got := parent(r); got != want {
			t.Errorf("the parent is %s, want %s", got, want)
		}
	}
}
