// Package rbac describes the kinds of rbac.authorization.k8s.io/v1: roles, and
// the bindings that give them to somebody.
package rbac

import (
	"context"
	"fmt"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definitions returns the four kinds.
func Definitions() []resource.Definition {
	return []resource.Definition{role(), roleBinding(), clusterRole(), clusterRoleBinding()}
}

func role() resource.Definition {
	return resource.Of[rbacv1.Role, rbacv1.RoleList](resource.Kind{
		GroupVersion: rbacv1.SchemeGroupVersion, Kind: "Role", Plural: "roles", Singular: "role",
	}, resource.Rules[rbacv1.Role]{
		ValidateName:        resource.PathSegmentName,
		Validate:            func(_ context.Context, r *rbacv1.Role) field.ErrorList { return ValidateRules(r.Rules, true) },
		AllowCreateOnUpdate: true,
		Table: table.Of(func(r *rbacv1.Role, _ time.Time) []any {
			return []any{r.Name, created(r.CreationTimestamp)}
		}, table.Name, createdAt),
	})
}

func clusterRole() resource.Definition {
	return resource.Of[rbacv1.ClusterRole, rbacv1.ClusterRoleList](resource.Kind{
		GroupVersion: rbacv1.SchemeGroupVersion, Kind: "ClusterRole", Plural: "clusterroles", Singular: "clusterrole",
		ClusterScoped: true,
	}, resource.Rules[rbacv1.ClusterRole]{
		ValidateName: resource.PathSegmentName,
		Validate: func(_ context.Context, r *rbacv1.ClusterRole) field.ErrorList {
			return append(ValidateRules(r.Rules, false), validateAggregation(r.AggregationRule)...)
		},
		AllowCreateOnUpdate: true,
		Table: table.Of(func(r *rbacv1.ClusterRole, _ time.Time) []any {
			return []any{r.Name, created(r.CreationTimestamp)}
		}, table.Name, createdAt),
	})
}

func roleBinding() resource.Definition {
	return resource.Of[rbacv1.RoleBinding, rbacv1.RoleBindingList](resource.Kind{
		GroupVersion: rbacv1.SchemeGroupVersion, Kind: "RoleBinding", Plural: "rolebindings", Singular: "rolebinding",
	}, resource.Rules[rbacv1.RoleBinding]{
		Default:      func(b *rbacv1.RoleBinding) { setDefaults(&b.RoleRef, b.Subjects) },
		ValidateName: resource.PathSegmentName,
		Validate: func(_ context.Context, b *rbacv1.RoleBinding) field.ErrorList {
			return validateBinding(&b.RoleRef, b.Subjects, true)
		},
		ValidateUpdate: func(_ context.Context, b, old *rbacv1.RoleBinding) field.ErrorList {
			return append(validateBinding(&b.RoleRef, b.Subjects, true), sameRole(b.RoleRef, old.RoleRef)...)
		},
		AllowCreateOnUpdate: true,
		Table: table.Of(func(b *rbacv1.RoleBinding, now time.Time) []any {
			return bindingRow(b.Name, b.RoleRef, b.Subjects, table.Since(b.CreationTimestamp, now))
		}, bindingColumns...),
	})
}

func clusterRoleBinding() resource.Definition {
	return resource.Of[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](resource.Kind{
		GroupVersion: rbacv1.SchemeGroupVersion, Kind: "ClusterRoleBinding",
		Plural: "clusterrolebindings", Singular: "clusterrolebinding", ClusterScoped: true,
	}, resource.Rules[rbacv1.ClusterRoleBinding]{
		Default:      func(b *rbacv1.ClusterRoleBinding) { setDefaults(&b.RoleRef, b.Subjects) },
		ValidateName: resource.PathSegmentName,
		Validate: func(_ context.Context, b *rbacv1.ClusterRoleBinding) field.ErrorList {
			return validateBinding(&b.RoleRef, b.Subjects, false)
		},
		ValidateUpdate: func(_ context.Context, b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
			return append(validateBinding(&b.RoleRef, b.Subjects, false), sameRole(b.RoleRef, old.RoleRef)...)
		},
		AllowCreateOnUpdate: true,
		Table: table.Of(func(b *rbacv1.ClusterRoleBinding, now time.Time) []any {
			return bindingRow(b.Name, b.RoleRef, b.Subjects, table.Since(b.CreationTimestamp, now))
		}, bindingColumns...),
	})
}

// setDefaults fills in the API groups: roles and people are of this one.
func setDefaults(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		if s := &subjects[i]; s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

var createdAt = table.Column{Name: "Created At", Description: "Time of creation."}

func created(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

var bindingColumns = []table.Column{
	table.Name,
	{Name: "Role", Description: "Role that is given."},
	table.Age,
	{Name: "Users", Wide: true, Description: "Users who get the role."},
	{Name: "Groups", Wide: true, Description: "Groups that get the role."},
	{Name: "ServiceAccounts", Wide: true, Description: "Service accounts that get the role."},
}

func bindingRow(name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject, age string) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, fmt.Sprintf("%s/%s", s.Namespace, s.Name))
		}
	}
	return []any{
		name,
		ref.Kind + "/" + ref.Name,
		age,
		strings.Join(users, ", "),
		strings.Join(groups, ", "),
		strings.Join(accounts, ", "),
	}
}
