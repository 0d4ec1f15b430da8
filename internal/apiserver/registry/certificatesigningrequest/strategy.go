// Package certificatesigningrequest describes the kind
// CertificateSigningRequest of certificates.k8s.io/v1. Who asks is recorded
// from the request itself; approval has a subresource of its own.
package certificatesigningrequest

import (
	"context"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/internal/apiserver/resource"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[certificatesv1.CertificateSigningRequest, certificatesv1.CertificateSigningRequestList](
		resource.Kind{
			GroupVersion: certificatesv1.SchemeGroupVersion, Kind: "CertificateSigningRequest",
			Plural: "certificatesigningrequests", Singular: "certificatesigningrequest", ShortNames: []string{"csr"},
			ClusterScoped: true,
		},
		resource.Rules[certificatesv1.CertificateSigningRequest]{
			Status:           func(c *certificatesv1.CertificateSigningRequest) any { return &c.Status },
			PrepareForCreate: recordRequester,
			// What is asked for cannot change: it might have been approved.
			PrepareForUpdate: func(_ context.Context, c, old *certificatesv1.CertificateSigningRequest) { c.Spec = old.Spec },
			Validate: func(_ context.Context, c *certificatesv1.CertificateSigningRequest) field.ErrorList {
				return Validate(c)
			},
			ValidateUpdate: func(_ context.Context, c, _ *certificatesv1.CertificateSigningRequest) field.ErrorList {
				return validateConditions(c)
			},
			PrepareStatusForUpdate: func(_ context.Context, c, old *certificatesv1.CertificateSigningRequest) {
				c.Spec = old.Spec
				stampConditions(c, old, metav1.Now())
			},
			ValidateStatusUpdate: func(_ context.Context, c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
				return ValidateStatusUpdate(c, old)
			},
			Fields: func(c *certificatesv1.CertificateSigningRequest) fields.Set {
				return fields.Set{"spec.signerName": c.Spec.SignerName}
			},
			FieldLabels: []string{"spec.signerName"},
			Table:       printer,
		},
	)
}

// recordRequester notes who is asking, whatever the request says about it.
func recordRequester(ctx context.Context, c *certificatesv1.CertificateSigningRequest) {
	c.Spec.Username, c.Spec.UID, c.Spec.Groups, c.Spec.Extra = "", "", nil, nil
	user, ok := request.UserFrom(ctx)
	if !ok {
		return
	}
	c.Spec.Username, c.Spec.UID, c.Spec.Groups = user.GetName(), user.GetUID(), slices.Clone(user.GetGroups())
	if extra := user.GetExtra(); len(extra) > 0 {
		c.Spec.Extra = map[string]certificatesv1.ExtraValue{}
		for key, values := range extra {
			c.Spec.Extra[key] = values
		}
	}
}

// stampConditions gives new and changed conditions their times.
func stampConditions(c, old *certificatesv1.CertificateSigningRequest, now metav1.Time) {
	type kind struct {
		of certificatesv1.RequestConditionType
		is corev1.ConditionStatus
	}
	since := map[kind]metav1.Time{}
	for i := range old.Status.Conditions {
		if before := &old.Status.Conditions[i]; !before.LastTransitionTime.IsZero() {
			since[kind{before.Type, before.Status}] = before.LastTransitionTime
		}
	}
	for i := range c.Status.Conditions {
		condition := &c.Status.Conditions[i]
		if condition.LastUpdateTime.IsZero() {
			condition.LastUpdateTime = now
		}
		if !condition.LastTransitionTime.IsZero() {
			continue
		}
		condition.LastTransitionTime = now
		if at, had := since[kind{condition.Type, condition.Status}]; had {
			condition.LastTransitionTime = at
		}
	}
}

// Extend adds the approval subresource, which changes conditions only.
func Extend(s *resource.Storage) {
	approval := *s.StatusStore
	approval.UpdateStrategy = approvalStrategy{s.StatusStore.UpdateStrategy}
	approval.ResetFieldsStrategy = nil
	s.Subresources["approval"] = &resource.SubresourceREST{Store: &approval}
}

type approvalStrategy struct{ rest.RESTUpdateStrategy }

// PrepareForUpdate keeps all but the conditions.
func (s approvalStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	now, before := obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest)
	now.Spec = before.Spec
	now.Status.Certificate = before.Status.Certificate
	stampConditions(now, before, metav1.Now())
}

// ValidateUpdate checks the conditions; an approval cannot be taken back.
func (s approvalStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	now, before := obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest)
	return append(validateConditions(now), keptConditions(now, before)...)
}
