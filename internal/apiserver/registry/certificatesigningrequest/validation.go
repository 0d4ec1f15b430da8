package certificatesigningrequest

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

var (
	specPath   = field.NewPath("spec")
	statusPath = field.NewPath("status")
)

// usages are the uses a certificate can be asked for.
var usages = []certificatesv1.KeyUsage{
	certificatesv1.UsageAny, certificatesv1.UsageCertSign, certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning,
	certificatesv1.UsageContentCommitment, certificatesv1.UsageCRLSign, certificatesv1.UsageDataEncipherment,
	certificatesv1.UsageDecipherOnly, certificatesv1.UsageDigitalSignature, certificatesv1.UsageEmailProtection,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
	certificatesv1.UsageIPsecUser,
	certificatesv1.UsageKeyAgreement, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageMicrosoftSGC,
	certificatesv1.UsageNetscapeSGC, certificatesv1.UsageOCSPSigning, certificatesv1.UsageSMIME,
	certificatesv1.UsageServerAuth,
	certificatesv1.UsageSigning, certificatesv1.UsageTimestamping,
}

const shortestSeconds = 600

// Validate checks a new request, metadata aside.
func Validate(c *certificatesv1.CertificateSigningRequest) field.ErrorList {
	var errs field.ErrorList
	if err := parse(c.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(specPath.Child("request"), c.Spec.Request, err.Error()))
	}
	at := specPath.Child("usages")
	if len(c.Spec.Usages) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	errs = append(errs, validateUsages(c.Spec.Usages, at)...)
	errs = append(errs, validateSigner(c.Spec.SignerName)...)
	if s := c.Spec.ExpirationSeconds; s != nil && *s < shortestSeconds {
		errs = append(errs, field.Invalid(
			specPath.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)",
		))
	}
	return append(errs, validateConditions(c)...)
}

func validateUsages(asked []certificatesv1.KeyUsage, at *field.Path) (errs field.ErrorList) {
	for i, u := range enough.Each(asked, &errs) {
		if !slices.Contains(usages, u) {
			errs = append(errs, field.NotSupported(at.Index(i), u, usages))
		}
	}
	seen := sets.New[certificatesv1.KeyUsage]()
	for i, u := range enough.Each(asked, &errs) {
		if seen.Has(u) {
			errs = append(errs, field.Duplicate(at.Index(i), u))
		}
		seen.Insert(u)
	}
	return errs
}

func parse(raw []byte) error {
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	// Who cannot sign with the key has no claim to a certificate for it.
	return request.CheckSignature()
}

func validateSigner(name string) field.ErrorList {
	path := specPath.Child("signerName")
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if name == "kubernetes.io/legacy-unknown" {
		return field.ErrorList{field.Invalid(path, name, "the legacy signerName is not allowed via this API version")}
	}
	domain, rest, found := strings.Cut(name, "/")
	if !found || strings.Contains(rest, "/") {
		return field.ErrorList{field.Invalid(
			path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'",
		)}
	}
	var errs field.ErrorList
	for _, m := range utilvalidation.IsDNS1123Subdomain(domain) {
		errs = append(errs, field.Invalid(path, domain, fmt.Sprintf("validating signer name domain segment: %s", m)))
	}
	if !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(path, domain, "should be a domain with at least two segments separated by dots"))
	}
	for _, m := range utilvalidation.IsDNS1123Subdomain(rest) {
		errs = append(errs, field.Invalid(path, rest, fmt.Sprintf("validating signer name path segment: %s", m)))
	}
	return errs
}

// validateConditions checks that a request is not both approved and denied.
func validateConditions(c *certificatesv1.CertificateSigningRequest) field.ErrorList {
	var errs field.ErrorList
	path := statusPath.Child("conditions")
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, condition := range enough.Each(c.Status.Conditions, &errs) {
		at := path.Index(i)
		if condition.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), ""))
		} else if seen[condition.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), condition.Type))
		}
		seen[condition.Type] = true
		errs = append(errs, validateConditionStatus(condition, at.Child("status"))...)
		if condition.Type == certificatesv1.CertificateApproved && seen[certificatesv1.CertificateDenied] ||
			condition.Type == certificatesv1.CertificateDenied && seen[certificatesv1.CertificateApproved] {
			errs = append(errs, field.Invalid(
				at.Child("type"), condition.Type, "Approved and Denied conditions are mutually exclusive",
			))
		}
	}
	return errs
}

func validateConditionStatus(c certificatesv1.CertificateSigningRequestCondition, path *field.Path) field.ErrorList {
	switch c.Type {
	case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
		if c.Status != corev1.ConditionTrue {
			return field.ErrorList{field.NotSupported(path, c.Status, []corev1.ConditionStatus{corev1.ConditionTrue})}
		}
		return nil
	}
	switch c.Status {
	case "":
		return field.ErrorList{field.Required(path, "")}
	case corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
		return nil
	}
	return field.ErrorList{field.NotSupported(path, c.Status, []corev1.ConditionStatus{
		corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown,
	})}
}

// ValidateStatusUpdate checks what a signer reports: the certificate, once; the
// decision is not the signer's.
func ValidateStatusUpdate(c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	errs := append(validateConditions(c), keptConditions(c, old)...)
	for _, t := range []certificatesv1.RequestConditionType{
		certificatesv1.CertificateApproved, certificatesv1.CertificateDenied,
	} {
		if has(c, t) && !has(old, t) {
			errs = append(errs, field.Forbidden(
				statusPath.Child("conditions"), fmt.Sprintf("updates may not add a condition of type %q", t),
			))
		}
	}
	at := statusPath.Child("certificate")
	if len(old.Status.Certificate) > 0 && !bytes.Equal(c.Status.Certificate, old.Status.Certificate) {
		errs = append(errs, field.Forbidden(at, "updates may not set certificate content after it has been set"))
	}
	if len(c.Status.Certificate) > 0 {
		if err := parseCertificates(c.Status.Certificate); err != nil {
			errs = append(errs, field.Invalid(at, "<certificate data>", err.Error()))
		}
	}
	return errs
}

func parseCertificates(raw []byte) error {
	for n := 0; ; n++ {
		block, rest := pem.Decode(raw)
		switch {
		case block == nil && n == 0:
			return errors.New("must contain at least one CERTIFICATE PEM block")
		case block == nil:
			return nil
		case block.Type != "CERTIFICATE":
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if _, err := x509.ParseCertificates(block.Bytes); err != nil {
			return err
		}
		raw = rest
	}
}

// keptConditions refuses to take a decision back.
func keptConditions(c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	var errs field.ErrorList
	for _, t := range []certificatesv1.RequestConditionType{
		certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed,
	} {
		if has(old, t) && !has(c, t) {
			errs = append(errs, field.Forbidden(
				statusPath.Child("conditions"), fmt.Sprintf("updates may not remove a condition of type %q", t),
			))
		}
	}
	return errs
}

func has(c *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(
		c.Status.Conditions,
		func(condition certificatesv1.CertificateSigningRequestCondition) bool {
			return condition.Type == t
		},
	)
}
