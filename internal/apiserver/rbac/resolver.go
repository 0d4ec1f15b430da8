package rbac

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
)

// subjectIndex finds bindings by whom they bind.
const subjectIndex = "everynode.io/rbac-subject"

// Resolver finds the rules that apply to a user.
type Resolver struct {
	clusterBindings cache.Indexer // by subject
	bindings        cache.Indexer // by namespace and subject
	clusterRoles    rbaclisters.ClusterRoleLister
	roles           rbaclisters.RoleLister
	synced          []cache.InformerSynced
	ready           atomic.Bool // HasSynced said yes once
}

// syncPoll is how often a request that came too early looks whether the roles are there.
const syncPoll = 20 * time.Millisecond

// NewResolver reads through the informers of a factory. It must be called before
// the factory starts.
func NewResolver(factory informers.SharedInformerFactory) (*Resolver, error) {
	v1 := factory.Rbac().V1()
	clusterBindings, bindings := v1.ClusterRoleBindings().Informer(), v1.RoleBindings().Informer()
	err := errors.Join(
		clusterBindings.AddIndexers(cache.Indexers{subjectIndex: indexClusterBinding}),
		bindings.AddIndexers(cache.Indexers{subjectIndex: indexBinding}),
	)
	if err != nil {
		return nil, fmt.Errorf("index bindings by subject: %w", err)
	}
	return &Resolver{
		clusterBindings: clusterBindings.GetIndexer(),
		bindings:        bindings.GetIndexer(),
		clusterRoles:    v1.ClusterRoles().Lister(),
		roles:           v1.Roles().Lister(),
		synced: []cache.InformerSynced{
			clusterBindings.HasSynced, bindings.HasSynced,
			v1.ClusterRoles().Informer().HasSynced, v1.Roles().Informer().HasSynced,
		},
	}, nil
}

// HasSynced reports whether all roles and bindings have been read once.
func (r *Resolver) HasSynced() bool {
	for _, synced := range r.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// Knows reports whether the cluster-wide roles and bindings of these names have
// been read.
func (r *Resolver) Knows(roles, bindings []string) bool {
	for _, name := range roles {
		if _, err := r.clusterRoles.Get(name); err != nil {
			return false
		}
	}
	for _, name := range bindings {
		if _, known, err := r.clusterBindings.GetByKey(name); err != nil || !known {
			return false
		}
	}
	return true
}

// waitForSync returns when all roles and bindings have been read once, or with the context's error.
func (r *Resolver) waitForSync(ctx context.Context) error {
	if r.ready.Load() {
		return nil
	}
	err := wait.PollUntilContextCancel(ctx, syncPoll, true, func(context.Context) (bool, error) {
		return r.HasSynced(), nil
	})
	if err == nil {
		r.ready.Store(true)
	}
	return err
}

// Rules gives every rule that applies to a user in a namespace; only
// cluster-wide ones when the namespace is empty. An error names what could not be
// resolved, such as a missing role; the rules found are valid all the same.
func (r *Resolver) Rules(who user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	var errs []error
	r.visit(who, namespace, func(_ source, rule *rbacv1.PolicyRule, err error) bool {
		if rule != nil {
			rules = append(rules, *rule)
		}
		if err != nil {
			errs = append(errs, err)
		}
		return true
	})
	return rules, utilerrors.NewAggregate(errs)
}

// rulesOf gives the rules of the role that a binding refers to.
func (r *Resolver) rulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	switch ref.Kind {
	case "Role":
		role, err := r.roles.Roles(namespace).Get(ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	case "ClusterRole":
		role, err := r.clusterRoles.Get(ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	}
	return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
}

// source tells where a rule comes from: a binding, its role and its subject.
type source struct {
	binding   string
	namespace string
	ref       rbacv1.RoleRef
	who       string
}

func (s source) String() string {
	kind, name := "ClusterRoleBinding", s.binding
	if s.namespace != "" {
		kind, name = "RoleBinding", s.binding+"/"+s.namespace
	}
	return fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s", kind, name, s.ref.Kind, s.ref.Name, s.who)
}

// visit calls f for every rule that applies and for every error, until f returns false.
func (r *Resolver) visit(who user.Info, namespace string, f func(source, *rbacv1.PolicyRule, error) bool) {
	for _, key := range subjectKeys(who) {
		found, err := r.clusterBindings.ByIndex(subjectIndex, key)
		if err != nil && !f(source{}, nil, err) {
			return
		}
		for _, obj := range found {
			binding := obj.(*rbacv1.ClusterRoleBinding)
			from := source{binding: binding.Name, ref: binding.RoleRef, who: describe(key)}
			if !r.visitRole(from, f) {
				return
			}
		}
		if namespace == "" {
			continue
		}
		found, err = r.bindings.ByIndex(subjectIndex, namespace+"/"+key)
		if err != nil && !f(source{}, nil, err) {
			return
		}
		for _, obj := range found {
			binding := obj.(*rbacv1.RoleBinding)
			from := source{binding: binding.Name, namespace: binding.Namespace, ref: binding.RoleRef, who: describe(key)}
			if !r.visitRole(from, f) {
				return
			}
		}
	}
}

func (r *Resolver) visitRole(from source, f func(source, *rbacv1.PolicyRule, error) bool) bool {
	rules, err := r.rulesOf(from.ref, from.namespace)
	if err != nil {
		return f(from, nil, err)
	}
	for i := range rules {
		if !f(from, &rules[i], nil) {
			return false
		}
	}
	return true
}

const (
	userPrefix  = "user:"
	groupPrefix = "group:"
)

// subjectKeys are the index keys of a user. A service account is indexed as the
// user that it authenticates as.
func subjectKeys(who user.Info) []string {
	keys := make([]string, 0, 1+len(who.GetGroups()))
	keys = append(keys, userPrefix+who.GetName())
	for _, group := range who.GetGroups() {
		keys = append(keys, groupPrefix+group)
	}
	return keys
}

func subjectKey(subject rbacv1.Subject, bindingNamespace string) (string, bool) {
	switch subject.Kind {
	case rbacv1.UserKind:
		return userPrefix + subject.Name, true
	case rbacv1.GroupKind:
		return groupPrefix + subject.Name, true
	case rbacv1.ServiceAccountKind:
		namespace := subject.Namespace
		if namespace == "" {
			namespace = bindingNamespace
		}
		return userPrefix + serviceaccount.MakeUsername(namespace, subject.Name), namespace != ""
	}
	return "", false
}

func describe(key string) string {
	if name, ok := strings.CutPrefix(key, userPrefix); ok {
		return fmt.Sprintf("User %q", name)
	}
	name, _ := strings.CutPrefix(key, groupPrefix)
	return fmt.Sprintf("Group %q", name)
}

func indexClusterBinding(obj any) ([]string, error) {
	binding, ok := obj.(*rbacv1.ClusterRoleBinding)
	if !ok {
		return nil, fmt.Errorf("index a %T as ClusterRoleBinding", obj)
	}
	return indexSubjects(binding.Subjects, ""), nil
}

func indexBinding(obj any) ([]string, error) {
	binding, ok := obj.(*rbacv1.RoleBinding)
	if !ok {
		return nil, fmt.Errorf("index a %T as RoleBinding", obj)
	}
	return indexSubjects(binding.Subjects, binding.Namespace), nil
}

func indexSubjects(subjects []rbacv1.Subject, namespace string) []string {
	keys := make([]string, 0, len(subjects))
	for _, subject := range subjects {
		key, ok := subjectKey(subject, namespace)
		if !ok {
			continue
		}
		if namespace != "" {
			key = namespace + "/" + key
		}
		keys = append(keys, key)
	}
	return keys
}
