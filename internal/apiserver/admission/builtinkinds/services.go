package builtinkinds

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
)

var apiServices = schema.GroupResource{Group: apiregistration.GroupName, Resource: "apiservices"}

// validateService refuses an APIService that would hand one of the server's own groups to
// somebody else: from then on he would be told of, and answer, every request for roles,
// Secrets or DaemonSets. Another version of such a group would be as bad: clients take
// the version that calls itself the preferred one.
func (p *plugin) validateService(a admission.Attributes) error {
	service, ok := a.GetObject().(*apiregistration.APIService)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected an APIService but got a %T", a.GetObject()))
	}
	if service.DeletionTimestamp != nil || service.Spec.Service == nil || !p.groups[service.Spec.Group] {
		return nil
	}
	// One that is there already may be changed, so that nothing else has to be mended first.
	if old, ok := a.GetOldObject().(*apiregistration.APIService); ok && old.Spec.Service != nil {
		return nil
	}
	return admission.NewForbidden(a, fmt.Errorf("spec.service: the group %q is served by the server itself, and no "+
		"other server may answer for it", service.Spec.Group))
}
