package certificatesigningrequest

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/everynode/everynode/internal/apiserver/table"
)

var printer = table.Of(func(c *certificatesv1.CertificateSigningRequest, now time.Time) []any {
	asked := "<none>"
	if s := c.Spec.ExpirationSeconds; s != nil {
		asked = duration.HumanDuration(time.Duration(*s) * time.Second)
	}
	return []any{
		c.Name,
		table.Since(c.CreationTimestamp, now),
		table.OrNone(c.Spec.SignerName),
		c.Spec.Username,
		asked,
		state(c),
	}
},
	table.Name,
	table.Age,
	table.Column{Name: "SignerName", Description: "Who is asked to sign."},
	table.Column{Name: "Requestor", Description: "Who asks."},
	table.Column{Name: "RequestedDuration", Description: "How long the certificate should be valid."},
	table.Column{Name: "Condition", Description: "What has been decided and done."},
)

func state(c *certificatesv1.CertificateSigningRequest) string {
	s := "Pending"
	switch {
	case has(c, certificatesv1.CertificateDenied):
		s = "Denied"
	case has(c, certificatesv1.CertificateApproved):
		s = "Approved"
	}
	if has(c, certificatesv1.CertificateFailed) {
		s += ",Failed"
	}
	if len(c.Status.Certificate) > 0 {
		s += ",Issued"
	}
	return s
}
