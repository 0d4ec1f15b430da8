package doctor

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/doctor/diagnosis"
)

// startupPolicy looks for the policy by which the API server closes nodes itself, and for a binding of it, in each
// version that may be served. What the versions have is alike.
func (l *looker) startupPolicy(ctx context.Context) error {
	for _, version := range registration.StartupPolicyVersions {
		kind := schema.GroupVersionResource{Group: admissionv1.GroupName, Version: version,
			Resource: "mutatingadmissionpolicies"}
		is := diagnosis.StartupPolicy{Version: version}
		object, err := l.dynamic.Resource(kind).Get(ctx, registration.StartupPolicyName, metav1.GetOptions{})
		if err == nil {
			is.Policy, err = converted[admissionv1.MutatingAdmissionPolicy](object)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		kind.Resource = "mutatingadmissionpolicybindings"
		list, err := l.dynamic.Resource(kind).List(ctx, metav1.ListOptions{})
		switch {
		case apierrors.IsNotFound(err): // the version is not served
			continue
		case err != nil:
			return err
		}
		for i := range list.Items {
			b, err := converted[admissionv1.MutatingAdmissionPolicyBinding](&list.Items[i])
			if err != nil {
				return err
			}
			if b.Spec.PolicyName == registration.StartupPolicyName &&
				(is.Binding == nil || b.Name == registration.StartupPolicyName) {
				is.Binding = b
			}
		}
		if is.Policy != nil || is.Binding != nil {
			l.seen.StartupPolicy = is
			return nil
		}
	}
	return nil
}

func converted[T any](object *unstructured.Unstructured) (*T, error) {
	into := new(T)
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return into, nil
}
