package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/stored"
)

// Extend has claims and templates refused that ask for more than their namespace may, and the parts of a claim's status
// written only by those who have a right to that part: who binds claims, and the driver of a device.
func Extend(claims, templates *resource.Storage, namespaces rest.Getter, decider authorizer.Authorizer) {
	rights := rights{namespaces, decider}
	for _, s := range []*resource.Storage{claims, templates} {
		s.Store.CreateStrategy = creation{s.Store.CreateStrategy, rights}
	}
	claims.StatusStore.UpdateStrategy = statusUpdate{claims.StatusStore.UpdateStrategy, rights}
}

type rights struct {
	namespaces rest.Getter
	decider    authorizer.Authorizer
}

type creation struct {
	rest.RESTCreateStrategy
	rights rights
}

// Validate implements rest.RESTCreateStrategy.
func (c creation) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	var errs field.ErrorList
	switch o := obj.(type) {
	case *resourcev1.ResourceClaim:
		errs = c.rights.forAdministration(ctx, o.Namespace, asksForAdministration(&o.Spec))
	case *resourcev1.ResourceClaimTemplate:
		errs = c.rights.forAdministration(ctx, o.Namespace, asksForAdministration(&o.Spec.Spec))
	}
	return append(errs, c.RESTCreateStrategy.Validate(ctx, obj)...)
}

type statusUpdate struct {
	rest.RESTUpdateStrategy
	rights rights
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s statusUpdate) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	claim, okClaim := obj.(*resourcev1.ResourceClaim)
	before, okBefore := old.(*resourcev1.ResourceClaim)
	if !okClaim || !okBefore {
		return field.ErrorList{field.InternalError(
			nil, fmt.Errorf("a claim's status is written with a %T over a %T", obj, old),
		)}
	}
	var errs field.ErrorList
	if administers(before.Status.Allocation) == nil {
		errs = append(errs, s.rights.forAdministration(ctx, claim.Namespace, administers(claim.Status.Allocation))...)
	}
	errs = append(errs, s.rights.toBind(ctx, &claim.Status, &before.Status)...)
	if claim.Status.Allocation != nil {
		errs = append(errs, s.rights.toReport(ctx, &claim.Status, &before.Status)...)
	}
	return append(errs, s.RESTUpdateStrategy.ValidateUpdate(ctx, obj, old)...)
}

// asksForAdministration returns where a claim asks for devices that others have too, nil if it does not.
func asksForAdministration(s *resourcev1.ResourceClaimSpec) *field.Path {
	for i, r := range s.Devices.Requests {
		if r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
			return specPath.Child("devices", "requests").Index(i).Child("adminAccess")
		}
	}
	return nil
}

func administers(a *resourcev1.AllocationResult) *field.Path {
	if a == nil {
		return nil
	}
	for i, r := range a.Devices.Results {
		if r.AdminAccess != nil && *r.AdminAccess {
			return field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
		}
	}
	return nil
}

func (r rights) forAdministration(ctx context.Context, namespace string, at *field.Path) field.ErrorList {
	if at == nil {
		return nil
	}
	ns, err := stored.Get[*corev1.Namespace](ctx, r.namespaces, "", namespace)
	if err != nil {
		return field.ErrorList{field.InternalError(
			at, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err),
		)}
	}
	if ns.Labels[resourcev1.DRAAdminNamespaceLabelKey] != "true" {
		return field.ErrorList{field.Forbidden(
			at,
			fmt.Sprintf(
				"admin access to devices requires the `%s: true` label on the containing namespace",
				resourcev1.DRAAdminNamespaceLabelKey,
			),
		)}
	}
	return nil
}

// toBind checks the right to choose the devices and the pods of a claim.
func (r rights) toBind(ctx context.Context, now, before *resourcev1.ResourceClaimStatus) field.ErrorList {
	if alike.Values(now.Allocation, before.Allocation) &&
		alike.Values(now.ReservedFor, before.ReservedFor) {
		return nil
	}
	at := field.NewPath("status", "allocation")
	base, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return field.ErrorList{field.InternalError(at, fmt.Errorf("cannot build authorizer attributes: %w", err))}
	}
	asked := question{Attributes: base, verb: base.GetVerb(), subresource: resourcev1.SubresourceBinding}
	if err := r.ask(ctx, asked); err != nil {
		return field.ErrorList{field.Forbidden(
			at,
			fmt.Sprintf(
				`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", `+
					`verb="%s" permission: %s`,
				asked.verb, err,
			),
		)}
	}
	return nil
}

// toReport checks the right to say something about devices, for each driver of which something is said. The account of
// a driver's pod may have it for its own node only.
func (r rights) toReport(ctx context.Context, now, before *resourcev1.ResourceClaimStatus) field.ErrorList {
	drivers := reportedAnew(now.Devices, before.Devices)
	if len(drivers) == 0 {
		return nil
	}
	at := field.NewPath("status", "devices")
	base, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return field.ErrorList{field.InternalError(at, fmt.Errorf("cannot build authorizer attributes: %w", err))}
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + base.GetVerb()}
	if isOnNode(base.GetUser(), nodeOf(now.Allocation)) {
		verbs = append([]string{resourcev1.VerbPrefixAssociatedNode + base.GetVerb()}, verbs...)
	}
	var errs field.ErrorList
	for _, driver := range drivers {
		if err := r.askAny(ctx, base, verbs, driver); err != nil {
			errs = append(errs, field.Forbidden(
				at,
				fmt.Sprintf(
					`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, err,
				),
			))
		}
	}
	return errs
}

// askAny returns the first refusal if every verb is refused.
func (r rights) askAny(ctx context.Context, base authorizer.Attributes, verbs []string, driver string) error {
	var first error
	for _, verb := range verbs {
		err := r.ask(ctx, question{
			Attributes:  base,
			verb:        verb,
			subresource: resourcev1.SubresourceDriver,
			namespace:   base.GetNamespace(),
			name:        driver,
		})
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func (r rights) ask(ctx context.Context, q question) error {
	decision, reason, err := r.decider.Authorize(ctx, q)
	if decision == authorizer.DecisionAllow {
		return nil // Also with an error: one role may be unreadable, and another one allow it.
	}
	switch {
	case err != nil && reason != "":
		reason = fmt.Sprintf("%v: %s", err, reason)
	case err != nil:
		reason = err.Error()
	}
	return responsewriters.ForbiddenStatusError(q, reason)
}

// reportedAnew lists the drivers of whose devices more, less or something else is said, in order.
func reportedAnew(now, before []resourcev1.AllocatedDeviceStatus) []string {
	old := map[device]resourcev1.AllocatedDeviceStatus{}
	for _, s := range before {
		old[reported(s)] = s
	}
	drivers := map[string]bool{}
	for _, s := range now {
		was, known := old[reported(s)]
		delete(old, reported(s))
		if !known || !alike.Values(was, s) {
			drivers[s.Driver] = true
		}
	}
	for _, s := range old {
		drivers[s.Driver] = true
	}
	return slices.Sorted(maps.Keys(drivers))
}

// nodeOf is the node on which an allocation is good, empty if it is good on several.
func nodeOf(a *resourcev1.AllocationResult) string {
	if a == nil || a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := term.MatchFields[0]
	if f.Key != "metadata.name" || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

// isOnNode says whether somebody is the account of a pod on the node.
func isOnNode(who user.Info, node string) bool {
	if _, _, err := serviceaccount.SplitUsername(who.GetName()); err != nil || node == "" {
		return false
	}
	return slices.Equal(who.GetExtra()[serviceaccount.NodeNameKey], []string{node})
}

// question asks about a subresource that is a right only, and is not served.
type question struct {
	authorizer.Attributes
	verb, subresource, namespace, name string
}

// GetVerb implements authorizer.Attributes.
func (q question) GetVerb() string { return q.verb }

// GetSubresource implements authorizer.Attributes.
func (q question) GetSubresource() string { return q.subresource }

// GetNamespace implements authorizer.Attributes.
func (q question) GetNamespace() string { return q.namespace }

// GetName implements authorizer.Attributes.
func (q question) GetName() string { return q.name }
