// Package secret describes the kind Secret of core/v1.
package secret

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.Secret, corev1.SecretList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "Secret",
		Plural: "secrets", Singular: "secret",
	}, resource.Rules[corev1.Secret]{
		Default:          SetDefaults,
		Validate:         func(_ context.Context, s *corev1.Secret) field.ErrorList { return Validate(s) },
		PrepareForUpdate: func(_ context.Context, s, old *corev1.Secret) { keepType(s, old) },
		ValidateUpdate:   func(_ context.Context, s, old *corev1.Secret) field.ErrorList { return ValidateUpdate(s, old) },
		WarningsOnCreate: func(_ context.Context, s *corev1.Secret) []string { return warnings(s) },
		WarningsOnUpdate: func(_ context.Context, s, _ *corev1.Secret) []string { return warnings(s) },
		Fields:           func(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} },
		FieldLabels:      []string{"type"},
		Table:            printer,
	})
}

// SetDefaults gives a secret its type and moves the text that users wrote to
// where it is stored.
func SetDefaults(s *corev1.Secret) {
	if s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
	for key, text := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key] = []byte(text)
	}
	s.StringData = nil
}

// warnings says that a certificate and its key are not a pair, and that nobody will put a token into a Secret that is
// there for one.
func warnings(s *corev1.Secret) []string {
	switch s.Type {
	case corev1.SecretTypeTLS:
		if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
			return []string{err.Error()}
		}
	case corev1.SecretTypeServiceAccountToken:
		if account := s.Annotations[corev1.ServiceAccountNameKey]; len(s.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return []string{fmt.Sprintf(
				"data[%s]: no token is put into it here, as such tokens never end; pods of the account %q have one by "+
					"themselves, and for others there is: kubectl create token %s",
				corev1.ServiceAccountTokenKey, account, account,
			)}
		}
	}
	return nil
}

// keepType lets an update leave the type out.
func keepType(s, old *corev1.Secret) {
	if s.Type == "" {
		s.Type = old.Type
	}
}

// ValidateUpdate checks a changed secret, metadata aside.
func ValidateUpdate(s, old *corev1.Secret) field.ErrorList {
	const frozen = "field is immutable when `immutable` is set"
	var errs field.ErrorList
	if s.Type != old.Type {
		errs = append(errs, field.Invalid(field.NewPath("type"), s.Type, "field is immutable"))
	}
	if old.Immutable != nil && *old.Immutable {
		if s.Immutable == nil || !*s.Immutable {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), frozen))
		}
		if !maps.EqualFunc(s.Data, old.Data, bytes.Equal) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), frozen))
		}
	}
	return append(errs, Validate(s)...)
}

var printer = table.Of(func(s *corev1.Secret, now time.Time) []any {
	return []any{s.Name, string(s.Type), int64(len(s.Data)), table.Since(s.CreationTimestamp, now)}
},
	table.Name,
	table.Column{Name: "Type", Description: "What the secret is for."},
	table.Column{Name: "Data", Description: "Number of keys."},
	table.Age,
)
