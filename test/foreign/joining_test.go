package foreign

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/testenv/machines"
)

// joining is what lets real nodes join a Kubernetes, as kubeadm sets it up: an authority, and a bootstrap token.
type joining struct {
	// host is the address at which the nodes reach the API server, and dir has all files.
	host, dir, token string
}

// bootstrap is the token, and who may have a certificate with it. kube-controller-manager approves it by these rights.
const bootstrap = `apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-authentication: "true"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nodes-ask}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:node-bootstrapper"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nodes-are-approved}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]
`

// certify makes the authority, and the certificates of the API server and of its calls to nodes.
func (c *cluster) certify(host string) {
	c.t.Helper()
	j := &joining{host: host, dir: c.dir}
	if err := os.MkdirAll(filepath.Join(c.dir, "certificates"), 0o700); err != nil {
		c.t.Fatal(err)
	}
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "foreign"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	root, key := c.certificate("ca", ca, nil, nil)
	c.certificate("certificates/apiserver", &x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"},
		IPAddresses: []net.IP{net.ParseIP(host)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, root, key)
	c.certificate("calls", &x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver-kubelet-client",
		Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, root, key)
	j.token = "abcdef.0123456789abcdef." + pki.HashOf(root)
	c.joins = j
}

// certificate writes NAME.crt, in which the authority follows, and NAME.key. Without an authority it is its own.
func (c *cluster) certificate(name string, of, by *x509.Certificate, byKey *ecdsa.PrivateKey) (*x509.Certificate,
	*ecdsa.PrivateKey) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	of.SerialNumber = big.NewInt(time.Now().UnixNano())
	of.NotBefore, of.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(24*time.Hour)
	var chain []byte
	if by == nil {
		by, byKey = of, key
	} else {
		chain = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: by.Raw})
	}
	raw, err := x509.CreateCertificate(rand.Reader, of, by, &key.PublicKey, byKey)
	if err != nil {
		c.t.Fatal(err)
	}
	made, err := x509.ParseCertificate(raw)
	if err != nil {
		c.t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(name+".crt", string(append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), chain...)))
	c.write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	return made, key
}

// serverFlags have the API server know nodes by their certificates, and let them change what is theirs alone.
func (j *joining) serverFlags() []string {
	if j == nil {
		return nil
	}
	in := func(name string) string { return filepath.Join(j.dir, name) }
	return []string{
		"--client-ca-file=" + in("ca.crt"), "--enable-bootstrap-token-auth", "--enable-admission-plugins=NodeRestriction",
		"--tls-cert-file=" + in("certificates/apiserver.crt"), "--tls-private-key-file=" + in("certificates/apiserver.key"),
		"--kubelet-client-certificate=" + in("calls.crt"), "--kubelet-client-key=" + in("calls.key"),
		"--kubelet-certificate-authority=" + in("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
	}
}

// managerFlags have kube-controller-manager sign certificates of nodes. Its accounts trust the authority.
func (j *joining) managerFlags() []string {
	if j == nil {
		return nil
	}
	return []string{
		"--cluster-signing-cert-file=" + filepath.Join(j.dir, "ca.crt"),
		"--cluster-signing-key-file=" + filepath.Join(j.dir, "ca.key"),
	}
}

// approves says yes to the serving certificates of nodes until the test ends, as an administrator does: no controller of
// Kubernetes does.
func (c *cluster) approves() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.t.Cleanup(func() { cancel(); <-done })
	requests := c.client.CertificatesV1().CertificateSigningRequests()
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			list, err := requests.List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=" + certificatesv1.KubeletServingSignerName})
			if err == nil {
				for i := range list.Items {
					r := &list.Items[i]
					if len(r.Status.Conditions) > 0 {
						continue
					}
					r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
						Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
					_, e := requests.UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{})
					err = errors.Join(err, e)
				}
			}
			if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
				c.t.Logf("approve certificates of nodes: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
}

// joined waits until all these machines are nodes that are ready.
func (c *cluster) joined(t *testing.T, all ...*machines.Machine) {
	t.Helper()
	for _, m := range all {
		await(t, m.Name+" is ready", func(ctx context.Context) error {
			n, err := c.client.CoreV1().Nodes().Get(ctx, m.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, cond := range n.Status.Conditions {
				if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("it has %+v", n.Status.Conditions)
		})
	}
}
