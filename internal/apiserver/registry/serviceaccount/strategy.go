// Package serviceaccount describes the kind ServiceAccount of core/v1.
package serviceaccount

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.ServiceAccount, corev1.ServiceAccountList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "ServiceAccount",
		Plural: "serviceaccounts", Singular: "serviceaccount", ShortNames: []string{"sa"},
	}, resource.Rules[corev1.ServiceAccount]{
		PrepareForCreate: func(_ context.Context, a *corev1.ServiceAccount) { keepNames(a) },
		PrepareForUpdate: func(_ context.Context, a, _ *corev1.ServiceAccount) { keepNames(a) },
		WarningsOnCreate: func(_ context.Context, a *corev1.ServiceAccount) []string { return warnings(a) },
		WarningsOnUpdate: func(_ context.Context, a, _ *corev1.ServiceAccount) []string { return warnings(a) },
		Table: table.Of(func(a *corev1.ServiceAccount, now time.Time) []any {
			return []any{a.Name, int64(len(a.Secrets)), table.Since(a.CreationTimestamp, now)}
		}, table.Name, table.Column{Name: "Secrets", Description: "Number of token secrets."}, table.Age),
	})
}

// keepNames reduces references to secrets, which are in the account's own
// namespace, to their names.
func keepNames(a *corev1.ServiceAccount) {
	for i := range a.Secrets {
		a.Secrets[i] = corev1.ObjectReference{Name: a.Secrets[i].Name}
	}
}

// mountableSecrets is an annotation that limited the secrets of an account's pods.
const mountableSecrets = "kubernetes.io/enforce-mountable-secrets"

func warnings(a *corev1.ServiceAccount) []string {
	if _, ok := a.Annotations[mountableSecrets]; !ok {
		return nil
	}
	return []string{
		"metadata.annotations[" + mountableSecrets +
			"]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
	}
}
