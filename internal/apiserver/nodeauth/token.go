package nodeauth

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// audienceVerb is what a role must allow, on a resource named like the audience, so
// that nodes get tokens for it that no pod asks for.
const audienceVerb = "request-serviceaccounts-token-audience"

// checkToken lets a node get those tokens that the pods bound to it ask for.
func (r *Restriction) checkToken(ctx context.Context, node string, a admission.Attributes) error {
	request, ok := a.GetObject().(*authenticationv1.TokenRequest)
	if !ok {
		return unexpected(a.GetObject())
	}
	ref := request.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return errors.New("node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return errors.New("node requested token with a pod binding without a uid")
	}
	pod, err := r.objects.GetPod(ctx, a.GetNamespace(), ref.Name)
	if apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(corev1.Resource("pod"), ref.Name) // in Kubernetes' own wording
	}
	if err != nil {
		return err
	}
	if pod.UID != ref.UID {
		return fmt.Errorf(
			"the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted "+
				"and then recreated",
			ref.UID,
		)
	}
	if pod.Spec.NodeName != node {
		return errors.New("node requested token bound to a pod scheduled on a different node")
	}
	return r.checkAudience(ctx, pod, request.Spec.Audiences, a)
}

// checkAudience lets a token be for nobody that the pod does not name.
func (r *Restriction) checkAudience(ctx context.Context, pod *corev1.Pod, audiences []string,
	a admission.Attributes) error {
	audience := "" // that of the API
	switch len(audiences) {
	case 0:
	case 1:
		audience = audiences[0]
	default:
		return errors.New("node may only request 0 or 1 audiences")
	}
	named, err := r.names(ctx, pod, audience)
	if err != nil || named {
		return err
	}
	decision, _, err := r.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: audienceVerb, Namespace: a.GetNamespace(), Resource: audience, Name: a.GetName(),
		ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	refusal := fmt.Errorf(
		"audience %q not found in pod spec volume, %s is not authorized to request tokens for this audience",
		audience, a.GetUserInfo().GetName(),
	)
	if err != nil {
		return fmt.Errorf("%w: %w", refusal, err)
	}
	return refusal
}

// names reports whether the pod, or a driver of its volumes, wants tokens for the audience.
func (r *Restriction) names(ctx context.Context, pod *corev1.Pod, audience string) (bool, error) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected != nil {
			for _, source := range v.Projected.Sources {
				if source.ServiceAccountToken != nil && source.ServiceAccountToken.Audience == audience {
					return true, nil
				}
			}
		}
		if v.CSI == nil {
			continue
		}
		driver, err := r.objects.GetCSIDriver(ctx, v.CSI.Driver)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("find out which tokens the driver %s wants: %w", v.CSI.Driver, err)
		}
		for _, wanted := range driver.Spec.TokenRequests {
			if wanted.Audience == audience {
				return true, nil
			}
		}
	}
	return false, nil
}

var certificateRequestResource = schema.GroupResource{
	Group:    certificatesv1.GroupName,
	Resource: "certificatesigningrequests",
}

// checkCertificateRequest lets a node ask for a node's certificates in its own name only.
func checkCertificateRequest(node string, a admission.Attributes) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" {
		return nil
	}
	csr, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpected(a.GetObject())
	}
	if s := csr.Spec.SignerName; s != certificatesv1.KubeletServingSignerName &&
		s != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("unable to parse csr: PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return fmt.Errorf("unable to parse csr: %w", err)
	}
	if own := userPrefix + node; request.Subject.CommonName != own {
		return fmt.Errorf("can only create a node CSR with CN=%s", own)
	}
	return nil
}
