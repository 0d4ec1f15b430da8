package backends

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// DocumentsRead is the condition of an APIService whose server answers, but with
// documents that are not taken. It is there only while it is false.
const DocumentsRead apiregistrationv1.APIServiceConditionType = "everynode.io/DocumentsRead"

// state is what is known of the Service of an APIService.
type state struct {
	service *corev1.Service
	err     error // that the Service could not be found
	slices  []*discoveryv1.EndpointSlice
}

// unreachable is why nobody needs to be asked: the words are Kubernetes'. Nil if somebody does.
func unreachable(s *apiregistrationv1.APIService, now state) *apiregistrationv1.APIServiceCondition {
	to := s.Spec.Service
	no := func(status apiregistrationv1.ConditionStatus, reason, format string,
		args ...any) *apiregistrationv1.APIServiceCondition {
		return &apiregistrationv1.APIServiceCondition{
			Type:    apiregistrationv1.Available,
			Status:  status,
			Reason:  reason,
			Message: fmt.Sprintf(format, args...),
		}
	}
	switch {
	case apierrors.IsNotFound(now.err):
		return no(
			apiregistrationv1.ConditionFalse, "ServiceNotFound", "service/%s in %q is not present", to.Name, to.Namespace,
		)
	case now.err != nil:
		return no(
			apiregistrationv1.ConditionUnknown, "ServiceAccessError", "service/%s in %q cannot be checked due to: %v", to.Name,
			to.Namespace, now.err,
		)
	case now.service.Spec.Type != corev1.ServiceTypeClusterIP:
		return nil
	}
	at := slices.IndexFunc(now.service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == *to.Port })
	if at < 0 {
		return no(
			apiregistrationv1.ConditionFalse, "ServicePortError", "service/%s in %q is not listening on port %d", to.Name,
			to.Namespace, *to.Port,
		)
	}
	name := now.service.Spec.Ports[at].Name
	switch {
	case len(now.slices) == 0:
		return no(
			apiregistrationv1.ConditionFalse, "EndpointsNotFound", "cannot find endpointslices for service/%s in %q", to.Name,
			to.Namespace,
		)
	case !slices.ContainsFunc(now.slices, func(s *discoveryv1.EndpointSlice) bool { return answers(s, name) }):
		return no(
			apiregistrationv1.ConditionFalse, "MissingEndpoints",
			"endpointslices for service/%s in %q have no addresses with port name %q",
			to.Name, to.Namespace, name,
		)
	}
	return nil
}

// answers says whether a slice has somebody who is ready at a port.
func answers(s *discoveryv1.EndpointSlice, port string) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
		return e.Conditions.Ready == nil || *e.Conditions.Ready
	}) &&
		slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool {
			return p.Name != nil && *p.Name == port && p.Port != nil
		})
}

// answered is what a server that was asked is.
func answered(err error) *apiregistrationv1.APIServiceCondition {
	if err != nil {
		return &apiregistrationv1.APIServiceCondition{
			Type:    apiregistrationv1.Available,
			Status:  apiregistrationv1.ConditionFalse,
			Reason:  "FailedDiscoveryCheck",
			Message: cut(err.Error()),
		}
	}
	return &apiregistrationv1.APIServiceCondition{
		Type:    apiregistrationv1.Available,
		Status:  apiregistrationv1.ConditionTrue,
		Reason:  "Passed",
		Message: "all checks passed",
	}
}

// documented writes what is wrong with the documents into a status, or takes it out.
func documented(s *apiregistrationv1.APIService, now apiregistrationv1.APIServiceCondition) {
	if now.Status == apiregistrationv1.ConditionFalse {
		helper.SetAPIServiceCondition(s, now)
		return
	}
	s.Status.Conditions = slices.DeleteFunc(s.Status.Conditions, func(c apiregistrationv1.APIServiceCondition) bool {
		return c.Type == DocumentsRead
	})
}

// longestMessage bounds what is written into a status of what a server has said.
const longestMessage = 1024

func cut(message string) string { return plaintext.Cut(message, longestMessage, "...") }

// same says whether two APIServices are asked in the same way.
func same(a, b *apiregistrationv1.APIService) bool {
	if a.UID != b.UID || a.Spec.Group != b.Spec.Group || a.Spec.Version != b.Spec.Version ||
		a.Spec.InsecureSkipTLSVerify != b.Spec.InsecureSkipTLSVerify ||
		string(a.Spec.CABundle) != string(b.Spec.CABundle) || a.Spec.GroupPriorityMinimum != b.Spec.GroupPriorityMinimum ||
		a.Spec.VersionPriority != b.Spec.VersionPriority {
		return false
	}
	x, y := a.Spec.Service, b.Spec.Service
	return x.Namespace == y.Namespace && x.Name == y.Name && *x.Port == *y.Port
}
