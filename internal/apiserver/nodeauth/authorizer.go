package nodeauth

import (
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/everynode/everynode/internal/apiserver/podspec/references"
)

// NewAuthorizer denies nodes what concerns others and has no opinion on anything
// else. It belongs before the roles. ReadAllNodes lets nodes list and watch all Nodes,
// which agents did that knew no other way.
func NewAuthorizer(objects Objects, readAllNodes bool) authorizer.Authorizer {
	n := &nodes{objects, readAllNodes}
	return authorizer.AuthorizerFunc(n.authorize)
}

type nodes struct {
	objects      Objects
	readAllNodes bool
}

var (
	claimResource          = corev1.Resource("persistentvolumeclaims")
	volumeResource         = corev1.Resource("persistentvolumes")
	attachmentResource     = schema.GroupResource{Group: storagev1.GroupName, Resource: "volumeattachments"}
	resourceClaimResource  = resourcev1.Resource("resourceclaims")
	resourceSliceResource  = resourcev1.Resource("resourceslices")
	secretResource         = corev1.Resource(references.Secrets)
	configMapResource      = corev1.Resource(references.ConfigMaps)
	podResource            = corev1.Resource(podsResource)
	nodeResource           = corev1.Resource("nodes")
	serviceAccountResource = corev1.Resource(references.ServiceAccounts)
	leaseResource          = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}
	csiNodeResource        = schema.GroupResource{Group: storagev1.GroupName, Resource: "csinodes"}
)

// authorize denies when a lookup fails: the roles behind it would allow.
func (n *nodes) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	node, isNode := nodeOf(a.GetUser())
	if !isNode || !a.IsResourceRequest() {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if name := a.GetUser().GetName(); node == "" && strings.HasPrefix(name, userPrefix) {
		return authorizer.DecisionDeny, fmt.Sprintf("unknown node for user %q", name), nil
	}
	if node == "" {
		return authorizer.DecisionDeny, "", nil
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
	switch (schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}) {
	case secretResource, configMapResource:
		return n.toRead(ctx, node, a)
	case serviceAccountResource:
		return n.toAccounts(ctx, node, a)
	case podResource:
		return n.toPods(ctx, node, a)
	case nodeResource:
		return toNodes(node, a, n.readAllNodes), nil
	case leaseResource:
		return toLeases(node, a), nil
	case csiNodeResource:
		return toCSINodes(node, a), nil
	case claimResource:
		if a.GetSubresource() == "status" {
			return n.toStatus(ctx, node, a)
		}
		return n.toGet(ctx, node, a)
	case volumeResource, attachmentResource, resourceClaimResource:
		return n.toGet(ctx, node, a)
	case resourceSliceResource:
		return n.toSlices(ctx, node, a)
	}
	return "", nil
}

func oneOf(a authorizer.Attributes, verbs ...string) bool { return slices.Contains(verbs, a.GetVerb()) }

// toRead allows reading, one by one, what the node's pods use.
func (n *nodes) toRead(ctx context.Context, node string, a authorizer.Attributes) (string, error) {
	switch {
	case !oneOf(a, "get", "list", "watch"):
		return "can only read resources of this type", nil
	case a.GetSubresource() != "":
		return "cannot read subresource", nil
	case a.GetNamespace() == "":
		return "can only read namespaced object of this type", nil
	}
	return n.toUsed(ctx, node, a)
}

// toGet is like toRead, for what nodes need not watch.
func (n *nodes) toGet(ctx context.Context, node string, a authorizer.Attributes) (string, error) {
	switch {
	case a.GetVerb() != "get":
		return "can only get individual resources of this type", nil
	case a.GetSubresource() != "":
		return "cannot get subresource", nil
	}
	return n.toUsed(ctx, node, a)
}

func (n *nodes) toStatus(ctx context.Context, node string, a authorizer.Attributes) (string, error) {
	if !oneOf(a, "update", "patch") {
		return "can only get/update/patch this type", nil
	}
	return n.toUsed(ctx, node, a)
}

// toUsed allows what a pod on the node uses.
func (n *nodes) toUsed(ctx context.Context, node string, a authorizer.Attributes) (string, error) {
	if a.GetName() == "" {
		return "No Object name found", nil
	}
	related, err := n.concerns(ctx, node, schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}, a)
	if err != nil || related {
		return "", err
	}
	return fmt.Sprintf("no relationship found between node '%s' and this object", node), nil
}

// concerns reports whether an object is one that a pod on the node uses, the volume of a claim that it uses, or what is
// attached to the node or lists its devices.
func (n *nodes) concerns(ctx context.Context, node string, resource schema.GroupResource,
	a authorizer.Attributes) (bool, error) {
	switch resource {
	case volumeResource:
		v, err := n.objects.GetVolume(ctx, a.GetName())
		if err != nil || v.Spec.ClaimRef == nil {
			return false, ignoreNotFound(err)
		}
		return n.related(ctx, node, reference{claimResource.Resource, v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name})
	case attachmentResource:
		attached, err := n.objects.GetAttachment(ctx, a.GetName())
		if err != nil {
			return false, ignoreNotFound(err)
		}
		return attached.Spec.NodeName == node, nil
	case resourceSliceResource:
		slice, err := n.objects.GetSlice(ctx, a.GetName())
		if err != nil {
			return false, ignoreNotFound(err)
		}
		return slice.Spec.NodeName != nil && *slice.Spec.NodeName == node, nil
	}
	return n.related(ctx, node, reference{a.GetResource(), a.GetNamespace(), a.GetName()})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// related reports whether a pod on the node uses an object, or is it. What the watch
// cache does not show is looked for once more, so a node is never refused what a pod
// that it has just got needs.
func (n *nodes) related(ctx context.Context, node string, ref reference) (bool, error) {
	for _, now := range []bool{false, true} {
		pods, err := n.objects.PodsOnNode(ctx, node, now)
		if err != nil {
			return false, err
		}
		if used(pods, ref) {
			return true, nil
		}
	}
	return false, nil
}

// toAccounts lets a node read the accounts of its pods and get tokens of them.
func (n *nodes) toAccounts(ctx context.Context, node string, a authorizer.Attributes) (string, error) {
	switch {
	case a.GetVerb() == "get" && a.GetSubresource() == "":
	case a.GetVerb() != "create" || a.GetName() == "":
		return "can only create tokens for individual service accounts", nil
	case a.GetSubresource() != "token":
		return "can only create token subresource of serviceaccount", nil
	}
	return n.toUsed(ctx, node, a)
}

// toPods lets a node read its own pods. What it may write is for the Restriction
// to check.
func (n *nodes) toPods(ctx context.Context, node string, a authorizer.Attributes) (string, error) {
	if a.GetSubresource() != "" {
		return "", nil
	}
	switch a.GetVerb() {
	case "list", "watch":
		if selects(a, "spec.nodeName", node) {
			return "", nil
		}
		if a.GetName() == "" {
			return "can only list/watch pods with spec.nodeName field selector", nil
		}
		return n.toUsed(ctx, node, a)
	case "get":
		return n.toUsed(ctx, node, a)
	}
	return "", nil
}

// selects reports whether a list or watch is of objects with that value only.
func selects(a authorizer.Attributes, field, value string) bool {
	requirements, err := a.GetFieldSelector()
	if err != nil {
		return false
	}
	for _, r := range requirements {
		if r.Field == field && r.Operator == selection.Equals && r.Value == value {
			return true
		}
	}
	return false
}

// toNodes lets a node read its own object, also before it is there. What it needs of
// others it gets from the group network.everynode.io; all of all only if the operator
// says so. What it may write is for the Restriction to check.
func toNodes(node string, a authorizer.Attributes, all bool) string {
	if a.GetSubresource() != "" || !oneOf(a, "get", "list", "watch") || a.GetName() == node {
		return ""
	}
	if a.GetName() == "" {
		if all && a.GetVerb() != "get" {
			return ""
		}
		return fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node)
	}
	return fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, a.GetName())
}

// toLeases allows the node's own lease. The name in a new lease is for the
// Restriction to check.
func toLeases(node string, a authorizer.Attributes) string {
	switch {
	case !oneOf(a, "get", "create", "update", "patch", "delete"):
		return "can only get, create, update, patch, or delete a node lease"
	case a.GetNamespace() != corev1.NamespaceNodeLease:
		return fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case a.GetVerb() != "create" && a.GetName() != node:
		return "can only access node lease with the same name as the requesting node"
	}
	return ""
}

// toCSINodes is like toLeases, for the object that lists the node's drivers.
func toCSINodes(node string, a authorizer.Attributes) string {
	switch {
	case !oneOf(a, "get", "create", "update", "patch", "delete"):
		return "can only get, create, update, patch, or delete a CSINode"
	case a.GetSubresource() != "":
		return "cannot authorize CSINode subresources"
	case a.GetVerb() != "create" && a.GetName() != node:
		return "can only access CSINode with the same name as the requesting node"
	}
	return ""
}

// toSlices lets a node keep the list of its own devices. The node that a new slice names is for the Restriction to
// check.
func (n *nodes) toSlices(ctx context.Context, node string, a authorizer.Attributes) (string, error) {
	switch {
	case a.GetSubresource() != "":
		return "cannot authorize ResourceSlice subresources", nil
	case oneOf(a, "get", "update", "patch", "delete"):
		return n.toUsed(ctx, node, a)
	case oneOf(a, "list", "watch", "deletecollection"):
		if !selects(a, resourcev1.ResourceSliceSelectorNodeName, node) {
			return "can only list/watch/deletecollection resourceslices with nodeName field selector", nil
		}
		return "", nil
	case a.GetVerb() != "create":
		return "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, " +
			"deletecollection", nil
	}
	return "", nil
}
