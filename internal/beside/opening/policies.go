package opening

import (
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/beside/registration"
)

// Policy is a policy by which an API server closes nodes itself: the printed one, or any that does so. Is is nil where
// only bindings of the printed one are there.
type Policy struct {
	// Version is that of its group in which it was read.
	Version, Name string
	Is            *admissionv1.MutatingAdmissionPolicy
	// Bindings are those that name it.
	Bindings []*admissionv1.MutatingAdmissionPolicyBinding
}

// Policies finds them, the one with the printed name last, in each version that may be served. What the versions have
// is alike.
func Policies(ctx context.Context, api kubernetes.Interface) ([]Policy, error) {
	for _, version := range registration.StartupPolicyVersions {
		found, err := policiesIn(ctx, api, version)
		switch {
		case apierrors.IsNotFound(err): // the version is not served
		case err != nil:
			return nil, fmt.Errorf("look for policies by which the API server closes nodes: %w", err)
		case found != nil:
			return found, nil
		}
	}
	return nil, nil
}

func policiesIn(ctx context.Context, api kubernetes.Interface, version string) (found []Policy, err error) {
	all, bindings, err := listed(ctx, api, version)
	if err != nil {
		return nil, err
	}
	named := map[string][]*admissionv1.MutatingAdmissionPolicyBinding{}
	for i := range bindings.Items {
		b := &bindings.Items[i]
		named[b.Spec.PolicyName] = append(named[b.Spec.PolicyName], b)
	}
	const printed = registration.StartupPolicyName
	own := Policy{Version: version, Name: printed, Bindings: named[printed]}
	for i := range all.Items {
		p := &all.Items[i]
		switch {
		case p.Name == printed:
			own.Is = p
		case registration.ClosesNodes(p):
			found = append(found, Policy{Version: version, Name: p.Name, Is: p, Bindings: named[p.Name]})
		}
	}
	if own.Is != nil || own.Bindings != nil {
		found = append(found, own)
	}
	return found, nil
}

// listed are all policies that change objects, and all their bindings.
func listed(ctx context.Context, api kubernetes.Interface, version string) (
	policies *admissionv1.MutatingAdmissionPolicyList, bindings *admissionv1.MutatingAdmissionPolicyBindingList,
	err error) {
	v1, beta, all := api.AdmissionregistrationV1(), api.AdmissionregistrationV1beta1(), metav1.ListOptions{}
	if version == "v1" {
		policies, err = v1.MutatingAdmissionPolicies().List(ctx, all)
		if err == nil {
			bindings, err = v1.MutatingAdmissionPolicyBindings().List(ctx, all)
		}
		return policies, bindings, err
	}
	policies, err = as[admissionv1.MutatingAdmissionPolicyList](beta.MutatingAdmissionPolicies().List(ctx, all))
	if err == nil {
		bindings, err = as[admissionv1.MutatingAdmissionPolicyBindingList](
			beta.MutatingAdmissionPolicyBindings().List(ctx, all))
	}
	return policies, bindings, err
}

// as is what was listed, in another version that has the same fields.
func as[T any](from any, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	into := new(T)
	return into, json.Unmarshal(raw, into)
}

// Delete deletes the policy, and then its bindings. Without it these do nothing: one that may not be deleted stays.
func (p *Policy) Delete(ctx context.Context, api kubernetes.Interface) error {
	v1, beta := api.AdmissionregistrationV1(), api.AdmissionregistrationV1beta1()
	policy, binding := v1.MutatingAdmissionPolicies().Delete, v1.MutatingAdmissionPolicyBindings().Delete
	if p.Version != "v1" {
		policy, binding = beta.MutatingAdmissionPolicies().Delete, beta.MutatingAdmissionPolicyBindings().Delete
	}
	if p.Is != nil {
		err := policy(ctx, p.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	for _, b := range p.Bindings {
		err := binding(ctx, b.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return err
		}
	}
	return nil
}
