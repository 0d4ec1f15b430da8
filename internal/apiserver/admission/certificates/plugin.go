// Package certificates checks what people do with certificate requests: nobody
// asks for a certificate of system:masters, or of those who may join as servers, only
// who has the verb `approve` on a signer approves or denies, and only who has the verb
// `sign` issues.
package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/storage/members"
)

type plugin struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
}

var _ admission.ValidationInterface = &plugin{}

// New makes the plugin; the authorizer answers for the verbs on signers.
func New(decider authorizer.UnconditionalAuthorizer) admission.ValidationInterface {
	return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update), authorizer: decider}
}

var requests = schema.GroupResource{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != requests {
		return nil
	}
	csr, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a CertificateSigningRequest but got a %T", a.GetObject()))
	}
	if a.GetOperation() == admission.Create {
		if group := asksToRule(csr); a.GetSubresource() == "" && group != "" {
			return admission.NewForbidden(a, fmt.Errorf("use of %s signer with %s group is not allowed",
				csr.Spec.SignerName, group))
		}
		return nil
	}
	old, ok := a.GetOldObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a CertificateSigningRequest but got a %T", a.GetOldObject()))
	}
	switch a.GetSubresource() {
	case "approval":
		return p.need(ctx, a, "approve", old.Spec.SignerName)
	case "status":
		if string(csr.Status.Certificate) != string(old.Status.Certificate) ||
			!alike.Values(csr.Status.Conditions, old.Status.Conditions) {
			return p.need(ctx, a, "sign", old.Spec.SignerName)
		}
	}
	return nil
}

// need asks for a verb on the signer itself or on all signers of its domain.
func (p *plugin) need(ctx context.Context, a admission.Attributes, verb, signer string) error {
	domain, _, _ := strings.Cut(signer, "/")
	var errs []error
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: a.GetUserInfo(), Verb: verb, Name: name, ResourceRequest: true,
			APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers",
		})
		if decision == authorizer.DecisionAllow {
			return nil
		}
		errs = append(errs, err)
	}
	text := fmt.Sprintf("user not permitted to %s requests with signerName %q", verb, signer)
	if err := errors.Join(errs...); err != nil {
		return admission.NewForbidden(a, fmt.Errorf("%s: %w", text, err))
	}
	return admission.NewForbidden(a, errors.New(text))
}

// asksToRule returns the group for which nobody gets a certificate, if it is one that is
// asked for: what its members may do is not for those who approve requests to give. It
// looks only at the signer that serves people; the others have stricter rules of their
// own. What cannot be read is for validation to refuse.
func asksToRule(csr *certificatesv1.CertificateSigningRequest) string {
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return ""
	}
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil {
		return ""
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	for _, group := range []string{user.SystemPrivilegedGroup, members.Group} {
		if err == nil && slices.Contains(request.Subject.Organization, group) {
			return group
		}
	}
	return ""
}
