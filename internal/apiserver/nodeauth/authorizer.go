package nodeauth

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
)

// NewAuthorizer denies nodes what concerns others and has no opinion on anything
// else. It belongs before the roles.
func NewAuthorizer(pods Pods, c clock.PassiveClock) authorizer.Authorizer {
	n := &nodes{pods: pods, relations: newRelations(pods, c)}
	return authorizer.AuthorizerFunc(n.authorize)
}

type nodes struct {
	pods      Pods
	relations *relations
}

var readVerbs = []string{"get", "list", "watch"}

// authorize denies when a lookup fails: the roles behind it would allow.
func (n *nodes) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	node, isNode := nodeOf(a.GetUser())
	if !isNode || !a.IsResourceRequest() {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if node == "" {
		return authorizer.DecisionDeny, fmt.Sprintf("unknown node for user %q", a.GetUser().GetName()), nil
	}
	reason, err := n.objection(ctx, node, a)
	if err != nil {
		return authorizer.DecisionDeny, "", fmt.Errorf("decide what node %s may: %w", node, err)
	}
	if reason != "" {
		return authorizer.DecisionDeny, reason, nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// objection says why a node may not do something, empty if nothing speaks against it.
func (n *nodes) objection(ctx context.Context, node string, a authorizer.Attributes) (string, error) {
	switch a.GetAPIGroup() {
	case corev1.GroupName:
		switch a.GetResource() {
		case secrets, configMaps:
			return n.toUsed(ctx, node, a, readVerbs)
		case serviceAccounts:
			return n.toUsed(ctx, node, a, []string{"get", "list", "watch", "create"})
		case "pods":
			return n.toPods(ctx, node, a)
		case "nodes":
			return toNodes(node, a), nil
		}
	case coordinationv1.GroupName:
		if a.GetResource() == "leases" {
			return toLeases(node, a), nil
		}
	case storagev1.GroupName:
		if a.GetResource() == "csinodes" && a.GetVerb() != "create" && a.GetName() != node {
			return "can only access CSINode with the same name as the requesting node", nil
		}
	}
	return "", nil
}

// toUsed allows objects that a pod on the node uses, one at a time.
func (n *nodes) toUsed(ctx context.Context, node string, a authorizer.Attributes, verbs []string) (string, error) {
	if !slices.Contains(verbs, a.GetVerb()) || (a.GetVerb() == "create" && a.GetSubresource() != "token") {
		return "", nil // up to the roles
	}
	if a.GetName() == "" {
		return fmt.Sprintf("node '%s' can only read %s by name", node, a.GetResource()), nil
	}
	related, err := n.relations.related(ctx, node, reference{a.GetResource(), a.GetNamespace(), a.GetName()})
	if err != nil || related {
		return "", err
	}
	return unrelated(node), nil
}

func unrelated(node string) string {
	return fmt.Sprintf("no relationship found between node '%s' and this object", node)
}

// toPods lets a node read its own pods. A pod that is not there may be asked for,
// so that a node learns that it has gone.
func (n *nodes) toPods(ctx context.Context, node string, a authorizer.Attributes) (string, error) {
	if a.GetSubresource() != "" {
		return "", nil
	}
	switch a.GetVerb() {
	case "list", "watch":
		requirements, err := a.GetFieldSelector()
		if err == nil {
			for _, r := range requirements {
				if r.Field == "spec.nodeName" && r.Value == node && (r.Operator == selection.Equals || r.Operator == selection.DoubleEquals) {
					return "", nil
				}
			}
		}
		return fmt.Sprintf("can only list/watch pods with spec.nodeName field selector %s", node), nil
	case "get":
		pod, err := n.pods.GetPod(ctx, a.GetNamespace(), a.GetName())
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if pod.Spec.NodeName != node {
			return unrelated(node), nil
		}
	}
	return "", nil
}

func toNodes(node string, a authorizer.Attributes) string {
	if slices.Contains([]string{"update", "patch", "delete"}, a.GetVerb()) && a.GetName() != node {
		return fmt.Sprintf("node '%s' cannot change node '%s'", node, a.GetName())
	}
	if a.GetVerb() == "deletecollection" {
		return "nodes cannot delete nodes"
	}
	return ""
}

// toLeases allows the node's own lease. The name in a new lease is for the
// Restriction to check.
func toLeases(node string, a authorizer.Attributes) string {
	if a.GetNamespace() != corev1.NamespaceNodeLease {
		return fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	if a.GetVerb() != "create" && a.GetName() != node {
		return "can only access node lease with the same name as the requesting node"
	}
	return ""
}
