package service

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// withoutNamespace widens a request's context to all namespaces.
func withoutNamespace(ctx context.Context) context.Context {
	return request.WithNamespace(ctx, metav1.NamespaceAll)
}
