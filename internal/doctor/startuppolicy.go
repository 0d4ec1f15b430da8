package doctor

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/doctor/diagnosis"
)

// startupPolicy looks for the policy by which the API server closes nodes itself, in each version that may be served.
func (l *looker) startupPolicy(ctx context.Context) error {
	for _, version := range registration.StartupPolicyVersions {
		policy, err := read[admissionv1.MutatingAdmissionPolicy](ctx, l, version, "mutatingadmissionpolicies")
		binding, also := read[admissionv1.MutatingAdmissionPolicyBinding](ctx, l, version,
			"mutatingadmissionpolicybindings")
		err = errors.Join(err, also)
		if err != nil {
			return err
		}
		if policy != nil || binding != nil {
			l.seen.StartupPolicy = diagnosis.StartupPolicy{Version: version, Policy: policy, Binding: binding}
			return nil
		}
	}
	return nil
}

// read reads that policy, or its binding; nil if it is not there. What the versions have is alike.
func read[T any](ctx context.Context, l *looker, version, resource string) (*T, error) {
	kind := schema.GroupVersionResource{Group: admissionv1.GroupName, Version: version, Resource: resource}
	object, err := l.dynamic.Resource(kind).Get(ctx, registration.StartupPolicyName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	into := new(T)
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", resource, registration.StartupPolicyName, err)
	}
	return into, nil
}
