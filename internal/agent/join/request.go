package join

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	userPrefix = "system:node:"
	nodesGroup = "system:nodes"
)

// wanted describes a certificate to ask for.
type wanted struct {
	signer   string
	usage    certificatesv1.KeyUsage
	nodeName string
	dnsNames []string
	ips      []net.IP
}

func wantedClient(nodeName string) wanted {
	return wanted{
		signer:   certificatesv1.KubeAPIServerClientKubeletSignerName,
		usage:    certificatesv1.UsageClientAuth,
		nodeName: nodeName,
	}
}

func wantedServing(nodeName string, ips []net.IP) wanted {
	w := wanted{
		signer:   certificatesv1.KubeletServingSignerName,
		usage:    certificatesv1.UsageServerAuth,
		nodeName: nodeName,
		ips:      ips,
	}
	w.dnsNames = []string{nodeName}
	return w
}

// requestCertificate makes a key, asks the server for a certificate and waits for it until ctx ends. The result is
// certificate and key, PEM encoded one after the other.
//
// identify says for a request, in PEM, which node it comes from; nil says nothing.
func requestCertificate(
	ctx context.Context,
	client kubernetes.Interface,
	w wanted,
	clock clock.Clock,
	identify func([]byte) (map[string]string, error),
) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: userPrefix + w.nodeName, Organization: []string{nodesGroup}},
		DNSNames:    w.dnsNames,
		IPAddresses: w.ips,
	}, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate signing request: %w", err)
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})
	var annotations map[string]string
	if identify != nil {
		if annotations, err = identify(data); err != nil {
			return nil, err
		}
	}
	csr, err := client.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-", Annotations: annotations},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    data,
			SignerName: w.signer,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, w.usage},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("send certificate signing request: %w", err)
	}
	certificate, err := awaitCertificate(ctx, client, csr.Name, clock)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	pair := append(bytes.TrimRight(certificate, "\n"), '\n')
	pair = append(pair, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...)
	if _, err := tls.X509KeyPair(pair, pair); err != nil {
		return nil, fmt.Errorf(
			"certificate signing request %s: the server answered with an unusable certificate: %w", csr.Name, err,
		)
	}
	return pair, nil
}

// awaitCertificate looks at the request, ever less often, until it is signed or refused.
func awaitCertificate(ctx context.Context, client kubernetes.Interface, name string,
	clock clock.Clock) ([]byte, error) {
	logger := klog.FromContext(ctx)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		csr, err := client.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			if err := refusal(csr); err != nil {
				return nil, err
			}
			if len(csr.Status.Certificate) > 0 {
				return csr.Status.Certificate, nil
			}
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return nil, fmt.Errorf("look at certificate signing request %s: %w", name, err)
		default:
			logger.V(2).Info("Certificate signing request cannot be read", "name", name, "err", err)
		}
		if pause == 2*time.Second {
			logger.Info("Waiting for the certificate signing request to be approved and signed", "name", name)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("certificate signing request %s was not signed in time: %w", name, context.Cause(ctx))
		case <-clock.After(pause):
		}
	}
}

// refusedError is the cluster's no to a request; asking for the same again is no use.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }

// refusal is the error that a denied or failed request stands for.
func refusal(csr *certificatesv1.CertificateSigningRequest) error {
	for _, condition := range csr.Status.Conditions {
		if condition.Status == corev1.ConditionFalse {
			continue
		}
		switch condition.Type {
		case certificatesv1.CertificateDenied:
			return &refusedError{fmt.Sprintf("certificate signing request %s was denied: %s", csr.Name, condition.Message)}
		case certificatesv1.CertificateFailed:
			return &refusedError{fmt.Sprintf(
				"certificate signing request %s could not be signed: %s", csr.Name, condition.Message,
			)}
		}
	}
	return nil
}

// explainClock says what is wrong when the server's certificate does not fit this machine's time.
func explainClock(err error) error {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return fmt.Errorf(
			"this machine's clock, or the server's certificate, is wrong; if it is the clock, set it: %w", invalid,
		)
	}
	return err
}

// explainRefusal turns the server's answer to a join token into words that help.
func explainRefusal(err error) error {
	if apierrors.IsUnauthorized(err) {
		return errors.New(
			"the server refused the join token: it is wrong or has expired; make a new one with `everynode token create`",
		)
	}
	return err
}
