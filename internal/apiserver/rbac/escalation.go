package rbac

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"

	"github.com/everynode/everynode/internal/apiserver/alike"
)

// Escalation keeps users from granting what they do not hold themselves. It runs
// when roles and bindings are written, as a validating admission plugin.
//
// A write passes when the user is in system:masters, may `escalate` the role (for
// roles) or `bind` the role (for bindings), or holds every rule in question.
type Escalation struct {
	resolver   *Resolver
	authorizer authorizer.UnconditionalAuthorizer
	roles      RolesClient
}

// RolesClient reads roles as they are now.
type RolesClient interface {
	rbacclient.RolesGetter
	rbacclient.ClusterRolesGetter
}

var _ admission.ValidationInterface = &Escalation{}

// NewEscalation checks with the rules of a resolver; the authorizer answers for
// the verbs `escalate` and `bind`. The role that a binding names is read through
// roles: it may be younger than what the resolver has seen.
func NewEscalation(resolver *Resolver, authorizer authorizer.UnconditionalAuthorizer, roles RolesClient) *Escalation {
	return &Escalation{resolver: resolver, authorizer: authorizer, roles: roles}
}

// Handles implements admission.Interface.
func (e *Escalation) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

// Validate implements admission.ValidationInterface.
func (e *Escalation) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().Group != rbacv1.GroupName || a.GetSubresource() != "" {
		return nil
	}
	return e.Check(ctx, a.GetUserInfo(), a.GetObject(), a.GetOldObject())
}

// Check returns a Forbidden error when user may not write obj. old is nil for a
// create. Kinds other than the four of RBAC pass.
func (e *Escalation) Check(ctx context.Context, who user.Info, obj, old runtime.Object) error {
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) || onlyCollectorFieldsDiffer(obj, old) {
		return nil
	}
	switch o := obj.(type) {
	case *rbacv1.Role:
		return e.checkRole(ctx, who, "roles", o.Namespace, o.Name, o.Rules)
	case *rbacv1.ClusterRole:
		return e.checkClusterRole(ctx, who, o, old)
	case *rbacv1.RoleBinding:
		return e.checkBinding(ctx, who, "rolebindings", o.Namespace, o.Name, o.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return e.checkBinding(ctx, who, "clusterrolebindings", "", o.Name, o.RoleRef)
	}
	return nil
}

func (e *Escalation) checkRole(
	ctx context.Context, who user.Info, resource, namespace, name string, rules []rbacv1.PolicyRule,
) error {
	if e.may(ctx, who, "escalate", resource, namespace, name) {
		return nil
	}
	return forbidden(resource, name, e.holds(who, namespace, rules))
}

// checkClusterRole treats an aggregation rule as everything: what other roles
// will match the selector cannot be known.
func (e *Escalation) checkClusterRole(ctx context.Context, who user.Info, role *rbacv1.ClusterRole,
	old runtime.Object) error {
	if e.may(ctx, who, "escalate", "clusterroles", "", role.Name) {
		return nil
	}
	if err := e.holds(who, "", role.Rules); err != nil {
		return forbidden("clusterroles", role.Name, err)
	}
	var oldRule *rbacv1.AggregationRule
	if oldRole, ok := old.(*rbacv1.ClusterRole); ok && oldRole != nil {
		oldRule = oldRole.AggregationRule
	}
	if role.AggregationRule == nil || alike.Values(role.AggregationRule, oldRule) {
		return nil
	}
	everything := []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}},
	}
	if err := e.holds(who, "", everything); err != nil {
		return forbidden(
			"clusterroles", role.Name, errors.New("must have cluster-admin privileges to use the aggregationRule"),
		)
	}
	return nil
}

func (e *Escalation) checkBinding(
	ctx context.Context, who user.Info, resource, namespace, name string, ref rbacv1.RoleRef,
) error {
	roleResource, roleNamespace := "clusterroles", namespace
	if ref.Kind == "Role" {
		roleResource = "roles"
	}
	if e.may(ctx, who, "bind", roleResource, roleNamespace, ref.Name) {
		return nil
	}
	rules, err := e.rulesOf(ctx, ref, namespace)
	if apierrors.IsNotFound(err) {
		return err
	}
	if err != nil {
		return forbidden(resource, name, err)
	}
	return forbidden(resource, name, e.holds(who, namespace, rules))
}

func (e *Escalation) rulesOf(ctx context.Context, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	switch ref.Kind {
	case "Role":
		role, err := e.roles.Roles(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	case "ClusterRole":
		role, err := e.roles.ClusterRoles().Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	}
	return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
}

func (e *Escalation) may(ctx context.Context, who user.Info, verb, resource, namespace, name string) bool {
	decision, _, err := e.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: verb, Namespace: namespace, Name: name, ResourceRequest: true,
		APIGroup: rbacv1.GroupName, APIVersion: "v1", Resource: resource,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

// holds returns an error that lists the rules which the user does not hold.
func (e *Escalation) holds(who user.Info, namespace string, rules []rbacv1.PolicyRule) error {
	held, resolveErr := e.resolver.Rules(who, namespace)
	missing, err := uncovered(held, rules)
	if err != nil || len(missing) == 0 {
		return err
	}
	lines := make([]string, 0, len(missing))
	for _, rule := range compact(missing) {
		lines = append(lines, describeRule(rule))
	}
	slices.Sort(lines)
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		who.GetName(), who.GetGroups(), strings.Join(lines, "\n"))
	if len(missing) == maxMissing {
		text += "\nand perhaps more, of which nothing is said"
	}
	if resolveErr != nil {
		text += "; resolution errors: " + resolveErr.Error()
	}
	return errors.New(text)
}

func forbidden(resource, name string, err error) error {
	if err == nil {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}, name, err)
}

// compact makes rules of rights. Those that differ in their verbs only become one.
func compact(rights []right) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	index, seen := map[right]int{}, sets.New[right]()
	for _, r := range rights {
		if seen.Has(r) {
			continue
		}
		seen.Insert(r)
		key := r
		key.verb = ""
		if i, ok := index[key]; ok {
			out[i].Verbs = append(out[i].Verbs, r.verb)
			continue
		}
		index[key] = len(out)
		out = append(out, r.rule())
	}
	return out
}

func (r right) rule() rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{Verbs: []string{r.verb}}
	if r.isURL {
		rule.NonResourceURLs = []string{r.url}
		return rule
	}
	rule.APIGroups, rule.Resources = []string{r.group}, []string{r.resource}
	if r.name != "" {
		rule.ResourceNames = []string{r.name}
	}
	return rule
}

func describeRule(rule rbacv1.PolicyRule) string {
	var b strings.Builder
	field := func(name string, values []string) {
		if len(values) == 0 {
			return
		}
		if b.Len() > 1 {
			b.WriteString(", ")
		}
		quoted := make([]string, len(values))
		for i, value := range values {
			quoted[i] = fmt.Sprintf("%q", value)
		}
		b.WriteString(name + ":[" + strings.Join(quoted, ", ") + "]")
	}
	b.WriteByte('{')
	field("APIGroups", rule.APIGroups)
	field("Resources", rule.Resources)
	field("ResourceNames", rule.ResourceNames)
	field("NonResourceURLs", rule.NonResourceURLs)
	field("Verbs", rule.Verbs)
	b.WriteByte('}')
	return b.String()
}

// onlyCollectorFieldsDiffer lets the garbage collector take away owner references
// and finalizers without holding the rules of the role.
func onlyCollectorFieldsDiffer(obj, old runtime.Object) bool {
	if old == nil || reflect.ValueOf(old).IsNil() {
		return false
	}
	newCopy, okNew := obj.DeepCopyObject().(metav1.Object)
	oldCopy, okOld := old.(metav1.Object)
	if !okNew || !okOld {
		return false
	}
	newCopy.SetOwnerReferences(oldCopy.GetOwnerReferences())
	newCopy.SetFinalizers(oldCopy.GetFinalizers())
	newCopy.SetManagedFields(oldCopy.GetManagedFields())
	newCopy.SetResourceVersion(oldCopy.GetResourceVersion())
	return alike.Values(newCopy, oldCopy)
}
