// Package podsecurity keeps pods within the Pod Security Standard that their
// namespace asks for with the labels pod-security.kubernetes.io/enforce, audit and
// warn. A namespace without labels allows everything.
//
// The standards themselves come from k8s.io/pod-security-admission; this package
// fits them into the server's chain of admission.
package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	podsecurity "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"
)

type plugin struct {
	*admission.Handler
	standards *podsecurity.Admission
}

var _ admission.ValidationInterface = &plugin{}

// recorder counts decisions, once for all servers of a process.
var recorder = sync.OnceValue(func() metrics.Recorder {
	r := metrics.NewPrometheusRecorder(api.GetAPIVersion())
	r.MustRegister(legacyregistry.MustRegister)
	return r
})

// New makes the plugin. Namespaces are looked up in the lister first; client reads
// what it does not know, and the pods of a namespace whose labels change.
func New(namespaces corelisters.NamespaceLister, client kubernetes.Interface) (admission.ValidationInterface, error) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("set up the pod security standards: %w", err)
	}
	configuration, err := load.LoadFromData(nil)
	if err != nil {
		return nil, fmt.Errorf("set up the pod security standards: %w", err)
	}
	standards := &podsecurity.Admission{
		Configuration: configuration, Evaluator: evaluator, Metrics: recorder(),
		PodSpecExtractor: podsecurity.DefaultPodSpecExtractor{},
		NamespaceGetter:  podsecurity.NamespaceGetterFromListerAndClient(namespaces, client),
		PodLister:        podsecurity.PodListerFromClient(client),
	}
	if err := errors.Join(standards.CompleteConfiguration(), standards.ValidateConfiguration()); err != nil {
		return nil, fmt.Errorf("set up the pod security standards: %w", err)
	}
	return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update), standards: standards}, nil
}

// checked are the kinds that the standards know.
var checked = map[schema.GroupResource]bool{
	corev1.Resource("namespaces"):             true,
	corev1.Resource("pods"):                   true,
	appsv1.Resource("daemonsets"):             true,
	appsv1.Resource("deployments"):            true,
	appsv1.Resource("replicasets"):            true,
	appsv1.Resource("statefulsets"):           true,
	batchv1.Resource("jobs"):                  true,
	batchv1.Resource("cronjobs"):              true,
	corev1.Resource("replicationcontrollers"): true,
	corev1.Resource("podtemplates"):           true,
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !checked[a.GetResource().GroupResource()] {
		return nil
	}
	result := p.standards.Validate(ctx, attributes{a})
	for _, text := range result.Warnings {
		warning.AddWarning(ctx, "", text)
	}
	for key, value := range result.AuditAnnotations {
		audit.AddAuditAnnotation(ctx, podSecurityPrefix+key, value)
	}
	if result.Allowed {
		return nil
	}
	refusal := admission.NewForbidden(a, errors.New("not allowed by the pod security standard of its namespace"))
	if result.Result == nil {
		return refusal
	}
	return tell(refusal, result.Result)
}

const podSecurityPrefix = "pod-security.kubernetes.io/"

// tell puts the standards' own message, code and details into a refusal.
func tell(refusal error, result *metav1.Status) error {
	var status *apierrors.StatusError
	if !errors.As(refusal, &status) {
		return refusal
	}
	if result.Message != "" {
		status.ErrStatus.Message = result.Message
	}
	if result.Reason != "" {
		status.ErrStatus.Reason = result.Reason
	}
	if result.Code != 0 {
		status.ErrStatus.Code = result.Code
	}
	if result.Details != nil {
		status.ErrStatus.Details = result.Details
	}
	return status
}

// attributes shows a request of the server as the standards want to see it.
type attributes struct{ admission.Attributes }

var _ api.Attributes = attributes{}

// GetOperation implements api.Attributes.
func (a attributes) GetOperation() admissionv1.Operation {
	return admissionv1.Operation(a.Attributes.GetOperation())
}

// GetObject implements api.Attributes.
func (a attributes) GetObject() (runtime.Object, error) { return a.Attributes.GetObject(), nil }

// GetOldObject implements api.Attributes.
func (a attributes) GetOldObject() (runtime.Object, error) { return a.Attributes.GetOldObject(), nil }

// GetUserName implements api.Attributes.
func (a attributes) GetUserName() string { return a.GetUserInfo().GetName() }
