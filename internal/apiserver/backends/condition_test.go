package backends

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

func apiService() *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com", UID: "1"}, Spec: apiregistrationv1.APIServiceSpec{
		Group: "example.com", Version: "v1", Service: &apiregistrationv1.ServiceReference{Namespace: "ns", Name: "s", Port: ptr.To(int32(443))}}}
}

func TestUnreachable(t *testing.T) {
	service := func(kind corev1.ServiceType, ports ...corev1.ServicePort) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, Ports: ports}}
	}
	port := corev1.ServicePort{Name: "https", Port: 443}
	slice := func(name string, ready *bool) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Name: &name, Port: ptr.To(int32(8443))}}, Endpoints: []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: ready}}}}
	}
	good := service(corev1.ServiceTypeClusterIP, port)
	for name, c := range map[string]struct {
		now    state
		status apiregistrationv1.ConditionStatus
		reason string
		words  string
	}{
		"no Service":        {state{err: apierrors.NewNotFound(corev1.Resource("services"), "s")}, "False", "ServiceNotFound", `service/s in "ns" is not present`},
		"nobody knows":      {state{err: errors.New("broken")}, "Unknown", "ServiceAccessError", `service/s in "ns" cannot be checked due to: broken`},
		"an external name":  {state{service: service(corev1.ServiceTypeExternalName)}, "", "", ""},
		"no port":           {state{service: service(corev1.ServiceTypeClusterIP, corev1.ServicePort{Port: 80})}, "False", "ServicePortError", "is not listening on port 443"},
		"no slices":         {state{service: good}, "False", "EndpointsNotFound", "cannot find endpointslices"},
		"no such port name": {state{service: good, slices: []*discoveryv1.EndpointSlice{slice("other", nil)}}, "False", "MissingEndpoints", `have no addresses with port name "https"`},
		"nobody is ready":   {state{service: good, slices: []*discoveryv1.EndpointSlice{slice("https", ptr.To(false))}}, "False", "MissingEndpoints", ""},
		"one is ready":      {state{service: good, slices: []*discoveryv1.EndpointSlice{slice("https", ptr.To(false)), slice("https", nil)}}, "", "", ""},
	} {
		got := unreachable(apiService(), c.now)
		if got == nil {
			if c.status != "" {
				t.Errorf("%s: it is to be asked", name)
			}
			continue
		}
		if got.Type != apiregistrationv1.Available || got.Status != c.status || got.Reason != c.reason || !strings.Contains(got.Message, c.words) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestConditions(t *testing.T) {
	if got := answered(errors.New(strings.Repeat("é", 5000))); got.Status != "False" || got.Reason != "FailedDiscoveryCheck" || len(got.Message) > 1100 {
		t.Errorf("of a server with much to say: %s, %s, %d bytes", got.Status, got.Reason, len(got.Message))
	}
	s := apiService()
	bad := apiregistrationv1.APIServiceCondition{Type: DocumentsRead, Status: "False", Reason: "TooLarge"}
	documented(s, bad)
	documented(s, bad)
	if len(s.Status.Conditions) != 1 {
		t.Errorf("the conditions are %v", s.Status.Conditions)
	}
	documented(s, apiregistrationv1.APIServiceCondition{Type: DocumentsRead, Status: "True"})
	if len(s.Status.Conditions) != 0 {
		t.Errorf("when all is well, the conditions are %v", s.Status.Conditions)
	}
}

func TestSame(t *testing.T) {
	for name, change := range map[string]func(*apiregistrationv1.APIService){
		"UID":       func(s *apiregistrationv1.APIService) { s.UID = "2" },
		"CA":        func(s *apiregistrationv1.APIService) { s.Spec.CABundle = []byte("x") },
		"insecure":  func(s *apiregistrationv1.APIService) { s.Spec.InsecureSkipTLSVerify = true },
		"priority":  func(s *apiregistrationv1.APIService) { s.Spec.VersionPriority = 9 },
		"group's":   func(s *apiregistrationv1.APIService) { s.Spec.GroupPriorityMinimum = 9 },
		"Service":   func(s *apiregistrationv1.APIService) { s.Spec.Service.Name = "other" },
		"namespace": func(s *apiregistrationv1.APIService) { s.Spec.Service.Namespace = "other" },
		"port":      func(s *apiregistrationv1.APIService) { s.Spec.Service.Port = ptr.To(int32(8443)) },
	} {
		other := apiService()
		change(other)
		if same(apiService(), other) {
			t.Errorf("another %s is the same", name)
		}
	}
	other := apiService()
	other.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available}}
	other.ResourceVersion = "7"
	if !same(apiService(), other) {
		t.Error("another status is asked in another way")
	}
}
