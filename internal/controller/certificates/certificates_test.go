package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	kubelet = certificatesv1.KubeAPIServerClientKubeletSignerName
	serving = certificatesv1.KubeletServingSignerName
	person  = certificatesv1.KubeAPIServerClientSignerName
)

var (
	clientUsages  = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	servingUsages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	testKey       = newKey()
)

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

func pemRequest(t *testing.T, template x509.CertificateRequest, key any) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func nodeSubject(name string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}
}

// newCSR is a request by a node that joins (kubelet), by node n1 (serving), or by jane (person).
func newCSR(t *testing.T, signer string, template x509.CertificateRequest) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr-1", UID: "u1", CreationTimestamp: metav1.NewTime(now)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pemRequest(t, template, testKey), SignerName: signer,
			Usages: clientUsages, Username: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers"},
		},
	}
	switch signer {
	case serving:
		csr.Spec.Usages, csr.Spec.Username, csr.Spec.Groups = servingUsages, "system:node:n1", []string{"system:nodes"}
	case person:
		csr.Spec.Username, csr.Spec.Groups = "jane", nil
	}
	return csr
}

func goodClient() x509.CertificateRequest { return x509.CertificateRequest{Subject: nodeSubject("n1")} }

func goodServing() x509.CertificateRequest {
	return x509.CertificateRequest{Subject: nodeSubject("n1"), DNSNames: []string{"n1"}, IPAddresses: []net.IP{net.ParseIP("10.0.0.1"), net.ParseIP("fd00::1")}}
}

func node(name string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, address := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return n
}

// control has the names and networks of a control plane.
var control = Control{
	Names: []string{"kubernetes.default.svc", "kubernetes", "localhost", "control", "api.example.com"}, IPs: []net.IP{{10, 0, 0, 254}, {10, 96, 0, 1}},
	Networks: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.244.0.0/16")},
}

// A node reports what it likes. Only what can be its own, and is nobody else's, is certified.
func TestServingNames(t *testing.T) {
	const fine = ""
	for _, c := range []struct {
		san, node, says string
	}{
		{"n1", "n1", fine}, {"n1.example.com", "n1", fine}, {"10.0.0.1", "n1", fine}, {"fd00::1", "n1", fine}, {"192.168.7.7", "n1", fine},
		{"control", "control", fine}, // a node on the machine of the control plane
		{"control", "n1", "API server"}, {"api.example.com", "n1", "API server"}, {"10.0.0.254", "n1", "API server"}, {"::ffff:10.0.0.254", "n1", "API server"},
		{"kubernetes", "n1", "API server"}, {"kubernetes", "kubernetes", "API server"}, {"kubernetes.default.svc", "n1", "API server"},
		{"kubernetes.default", "n1", "API server"}, {"kubernetes.example.com", "n1", "API server"},
		{"web.default.svc", "n1", "Services"}, {"web.default.svc.cluster.local", "n1", "Services"}, {"web.ns.svc.corp.example", "n1", "Services"}, {"cluster.local", "n1", "Services"},
		{"localhost", "n1", "another machine"}, {"localhost", "localhost", "another machine"}, {"a.localhost", "n1", "another machine"},
		{"127.0.0.1", "n1", "another machine"}, {"127.9.9.9", "n1", "another machine"}, {"::1", "n1", "another machine"}, {"::ffff:127.0.0.1", "n1", "another machine"},
		{"0.0.0.0", "n1", "no machine's"}, {"::", "n1", "no machine's"}, {"224.0.0.1", "n1", "no machine's"}, {"255.255.255.255", "n1", "no machine's"},
		{"10.96.0.1", "n1", "API server"}, {"10.96.7.7", "n1", "10.96.0.0/16"}, {"10.244.3.4", "n1", "10.244.0.0/16"}, {"::ffff:10.244.3.4", "n1", "10.244.0.0/16"},
		{"n2", "n1", "node n2"}, {"10.0.0.2", "n1", "node n2"}, {"n2.example.com", "n1", "node n2"},
	} {
		request := x509.CertificateRequest{Subject: nodeSubject(c.node)}
		san := c.san
		if ip := net.ParseIP(c.san); ip != nil {
			request.IPAddresses, san = []net.IP{ip}, ip.String()
		} else {
			request.DNSNames = []string{c.san}
		}
		csr := newCSR(t, serving, request)
		csr.Spec.Username = "system:node:" + c.node
		// The node reports everything.
		facts := Facts{Node: node(c.node, c.san), Control: control, Holders: map[string]string{}}
		for _, n2s := range []string{"n2", "n2.example.com", "10.0.0.2"} {
			facts.Holders[n2s] = "n2"
		}
		got, err := decide(csr, fixed(facts), now)
		switch {
		case err != nil:
			t.Fatal(err)
		case c.says == fine && got.Action != Approve:
			t.Errorf("node %s, %s: %s (%s), want it approved", c.node, san, got.Action, got.Message)
		case c.says != fine && (got.Action != Fail || got.Reason != "NotTheNodes" || !strings.Contains(got.Message, c.says) || !strings.Contains(got.Message, san)):
			t.Errorf("node %s, %s: %s %s (%s), want it to fail with %q", c.node, san, got.Action, got.Reason, got.Message, c.says)
		}
	}
}

func fixed(f Facts) func(*request, bool) (Facts, error) {
	return func(*request, bool) (Facts, error) { return f, nil }
}

func condition(kind certificatesv1.RequestConditionType, at time.Time) certificatesv1.CertificateSigningRequestCondition {
	return certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(at)}
}

func TestDecide(t *testing.T) {
	type request = certificatesv1.CertificateSigningRequest
	approve := func(csr *request) {
		csr.Status.Conditions = append(csr.Status.Conditions, condition(certificatesv1.CertificateApproved, now))
	}
	cases := []struct {
		name   string
		signer string
		make   func() x509.CertificateRequest
		change func(*request)
		facts  Facts
		action Action
		reason string
	}{
		{"joining node", kubelet, goodClient, nil, Facts{MayRequest: true}, Approve, "AutoApproved"},
		{"joining node without permission", kubelet, goodClient, nil, Facts{}, Wait, "RequesterMayNot"},
		{"the API server itself, approved", person, func() x509.CertificateRequest {
			return x509.CertificateRequest{Subject: pkix.Name{CommonName: "kube-apiserver-kubelet-client"}}
		}, approve, Facts{}, Fail, "SignerValidationFailure"},
		{"approved node", kubelet, goodClient, approve, Facts{}, Sign, "Approved"},
		{"serving, all its own", serving, goodServing, nil, Facts{Node: node("n1", "10.0.0.1", "FD00:0::1")}, Approve, "AutoApproved"},
		{"serving, node not there yet", serving, goodServing, nil, Facts{}, Wait, "NodeReportsOtherAddresses"},
		{"serving, address of somebody else", serving, goodServing, nil, Facts{Node: node("n1", "10.0.0.1", "fd00::2")}, Wait, "NodeReportsOtherAddresses"},
		{"serving, address of somebody else for long", serving, goodServing,
			func(c *request) { c.CreationTimestamp = metav1.NewTime(now.Add(-6 * time.Minute)) },
			Facts{Node: node("n1", "10.0.0.1")}, Fail, "NodeReportsOtherAddresses"},
		{"person waits", person, func() x509.CertificateRequest { return x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}} }, nil, Facts{MayRequest: true}, Wait, "WaitsForApproval"},
		{"person approved", person, func() x509.CertificateRequest { return x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}} }, approve, Facts{}, Sign, "Approved"},
		{"person wants to be master, approved", person, func() x509.CertificateRequest {
			return x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Organization: []string{"dev", "system:masters"}}}
		}, approve, Facts{}, Fail, "SignerValidationFailure"},
		{"person wants to join as a server, approved", person, func() x509.CertificateRequest {
			return x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Organization: []string{"dev", "system:bootstrappers:servers"}}}
		}, approve, Facts{}, Fail, "SignerValidationFailure"},
		{"denied", kubelet, goodClient, func(c *request) {
			c.Status.Conditions = append(c.Status.Conditions, condition(certificatesv1.CertificateDenied, now))
		}, Facts{MayRequest: true}, Wait, "Answered"},
		{"denied and approved", kubelet, goodClient, func(c *request) {
			approve(c)
			c.Status.Conditions = append(c.Status.Conditions, condition(certificatesv1.CertificateDenied, now))
		}, Facts{MayRequest: true}, Wait, "Answered"},
		{"foreign signer", "example.com/mine", goodClient, nil, Facts{MayRequest: true}, Wait, "ForeignSigner"},
		{"foreign signer, approved", "example.com/mine", goodClient, approve, Facts{MayRequest: true}, Wait, "ForeignSigner"},
		{"pending for a day", person, goodClient, func(c *request) { c.CreationTimestamp = metav1.NewTime(now.Add(-24 * time.Hour)) }, Facts{}, Delete, "TooOld"},
		{"denied an hour ago", kubelet, goodClient, func(c *request) {
			c.Status.Conditions = append(c.Status.Conditions, condition(certificatesv1.CertificateDenied, now.Add(-time.Hour)))
		}, Facts{}, Delete, "TooOld"},
		{"signed an hour ago", kubelet, goodClient, func(c *request) {
			c.Status.Conditions = append(c.Status.Conditions, condition(certificatesv1.CertificateApproved, now.Add(-time.Hour)))
			c.Status.Certificate = []byte("x")
		}, Facts{}, Delete, "TooOld"},
		{"approved an hour ago, still to be signed", kubelet, goodClient, func(c *request) {
			c.Status.Conditions = append(c.Status.Conditions, condition(certificatesv1.CertificateApproved, now.Add(-time.Hour)))
		}, Facts{}, Sign, "Approved"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			csr := newCSR(t, c.signer, c.make())
			if c.change != nil {
				c.change(csr)
			}
			got, err := decide(csr, fixed(c.facts), now)
			if err != nil {
				t.Fatal(err)
			}
			if got.Action != c.action || got.Reason != c.reason {
				t.Errorf("decision = %s (%s: %s), want %s (%s)", got.Action, got.Reason, got.Message, c.action, c.reason)
			}
			if got.Action == Wait && got.After <= 0 {
				t.Errorf("waits for %s", got.After)
			}
		})
	}
}

// Each of these must never be approved or signed, however strong the requester.
func TestHostileRequests(t *testing.T) {
	type spec = certificatesv1.CertificateSigningRequestSpec
	evil, _ := url.Parse("spiffe://evil")
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Skip("this Go refuses to make weak keys:", err)
	}
	cases := []struct {
		name     string
		signer   string
		template x509.CertificateRequest
		change   func(*spec)
		says     string
	}{
		{"node becomes master", kubelet, x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes", "system:masters"}}}, nil, "organization must be exactly"},
		{"node without group", kubelet, x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1"}}, nil, "organization must be exactly"},
		{"user instead of node", kubelet, x509.CertificateRequest{Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:nodes"}}}, nil, "common name must be"},
		{"node without name", kubelet, x509.CertificateRequest{Subject: nodeSubject("")}, nil, "common name must be"},
		{"client with a name to serve", kubelet, x509.CertificateRequest{Subject: nodeSubject("n1"), DNSNames: []string{"kubernetes.default.svc"}}, nil, "no subject alternative names"},
		{"client with an address to serve", kubelet, x509.CertificateRequest{Subject: nodeSubject("n1"), IPAddresses: []net.IP{{10, 0, 0, 1}}}, nil, "no subject alternative names"},
		{"client that also serves", kubelet, goodClient(), func(s *spec) { s.Usages = append(s.Usages, certificatesv1.UsageServerAuth) }, "does not fit the signer"},
		{"client without client auth", kubelet, goodClient(), func(s *spec) { s.Usages = servingUsages }, "does not fit the signer"},
		{"client as an authority", kubelet, goodClient(), func(s *spec) { s.Usages = append(s.Usages, certificatesv1.UsageCertSign) }, "not granted"},
		{"client for anything", kubelet, goodClient(), func(s *spec) { s.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageAny} }, "not granted"},
		{"no usages", kubelet, goodClient(), func(s *spec) { s.Usages = nil }, "does not fit the signer"},
		{"URI as a name", kubelet, x509.CertificateRequest{Subject: nodeSubject("n1"), URIs: []*url.URL{evil}}, nil, "URIs are not allowed"},
		{"mail address as a name", kubelet, x509.CertificateRequest{Subject: nodeSubject("n1"), EmailAddresses: []string{"a@b"}}, nil, "not allowed"},
		{"any name of a domain", serving, x509.CertificateRequest{Subject: nodeSubject("n1"), DNSNames: []string{"*.example.com"}}, nil, "not a DNS name"},
		{"any name", serving, x509.CertificateRequest{Subject: nodeSubject("n1"), DNSNames: []string{"*"}}, nil, "not a DNS name"},
		{"name in another form", serving, x509.CertificateRequest{Subject: nodeSubject("n1"), DNSNames: []string{"Kubernetes.Default.Svc"}}, nil, "not a DNS name"},
		{"name with a dot behind", serving, x509.CertificateRequest{Subject: nodeSubject("n1"), DNSNames: []string{"kubernetes."}}, nil, "not a DNS name"},
		{"address as a name", serving, x509.CertificateRequest{Subject: nodeSubject("n1"), DNSNames: []string{"10.96.0.1"}}, nil, "not a DNS name"},
		{"garbage", kubelet, goodClient(), func(s *spec) { s.Request = []byte("garbage") }, "no PEM block"},
		{"certificate instead of a request", kubelet, goodClient(), func(s *spec) {
			s.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
		}, "no PEM block of type CERTIFICATE REQUEST"},
		{"signature of another key", kubelet, goodClient(), func(s *spec) {
			block, _ := pem.Decode(s.Request)
			block.Bytes[len(block.Bytes)-1] ^= 1
			s.Request = pem.EncodeToMemory(block)
		}, "spec.request"},
		{"weak key", kubelet, goodClient(), func(s *spec) { s.Request = pemRequest(t, goodClient(), weak) }, "1024 bits"},
		{"serving for another node", serving, x509.CertificateRequest{Subject: nodeSubject("n2"), DNSNames: []string{"n2"}}, nil, "by the node itself"},
		{"serving by a joining node", serving, goodServing(), func(s *spec) { s.Username = "system:bootstrap:abcdef" }, "by the node itself"},
		{"serving by a namesake without the group", serving, goodServing(), func(s *spec) { s.Groups = []string{"system:authenticated"} }, "by the node itself"},
		{"serving for nothing", serving, x509.CertificateRequest{Subject: nodeSubject("n1")}, nil, "at least one"},
		{"serving that is also a client", serving, goodServing(), func(s *spec) { s.Usages = append(s.Usages, certificatesv1.UsageClientAuth) }, "does not fit the signer"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			csr := newCSR(t, c.signer, c.template)
			if c.change != nil {
				c.change(&csr.Spec)
			}
			for _, approved := range []bool{false, true} {
				if approved {
					csr.Status.Conditions = append(csr.Status.Conditions, condition(certificatesv1.CertificateApproved, now))
				}
				got, err := decide(csr, fixed(Facts{MayRequest: true, Node: node("n1", "10.0.0.1", "fd00::1")}), now)
				if err != nil {
					t.Fatal(err)
				}
				if got.Action != Fail || !strings.Contains(got.Message, c.says) {
					t.Errorf("approved=%v: %s (%s), want fail with %q", approved, got.Action, got.Message, c.says)
				}
			}
		})
	}
}

func TestFactsThatCannotBeReadDecideNothing(t *testing.T) {
	boom := errors.New("boom")
	_, err := decide(newCSR(t, kubelet, goodClient()), func(*request, bool) (Facts, error) { return Facts{}, boom }, now)
	if !errors.Is(err, boom) {
		t.Errorf("error = %v, want boom", err)
	}
}

func TestLifetimeIsWithinLimits(t *testing.T) {
	for seconds, want := range map[int32]time.Duration{1: 10 * time.Minute, 600: 10 * time.Minute, 3600: time.Hour, 1 << 30: maxTTL} {
		if got := ttlOf(&seconds); got != want {
			t.Errorf("ttlOf(%d) = %s, want %s", seconds, got, want)
		}
	}
	if got := ttlOf(nil); got != maxTTL {
		t.Errorf("ttlOf(nil) = %s", got)
	}
}
