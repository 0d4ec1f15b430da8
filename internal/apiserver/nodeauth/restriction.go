package nodeauth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/everynode/everynode/internal/apiserver/alike"
)

// Restriction refuses what a node writes about others. It looks at what the node
// itself sent, before other plugins and webhooks add to it.
type Restriction struct {
	*admission.Handler
	objects    Objects
	authorizer authorizer.UnconditionalAuthorizer
	// networks are those that the addresses of nodes are of, if the operator has said so.
	networks []netip.Prefix
}

var (
	_ admission.MutationInterface   = &Restriction{}
	_ admission.ValidationInterface = &Restriction{}
)

// NewRestriction makes the admission plugin. The authorizer answers which tokens
// nodes may have beyond those that pods ask for. networks are those that the addresses of
// nodes are of; with none, they are private or those that nodes speak from.
func NewRestriction(
	objects Objects, decider authorizer.UnconditionalAuthorizer, networks ...netip.Prefix,
) *Restriction {
	return &Restriction{
		Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		objects: objects, authorizer: decider, networks: networks,
	}
}

// Admit implements admission.MutationInterface. It changes nothing.
func (r *Restriction) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetOperation() == admission.Delete {
		return nil // Validate has the object.
	}
	return r.restrict(ctx, a)
}

// Validate implements admission.ValidationInterface, for what is deleted: it is
// asked about the object that there is at that moment.
func (r *Restriction) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetOperation() != admission.Delete {
		return nil
	}
	return r.restrict(ctx, a)
}

func (r *Restriction) restrict(ctx context.Context, a admission.Attributes) error {
	node, isNode := nodeOf(a.GetUserInfo())
	if !isNode {
		return nil
	}
	if node == "" {
		return admission.NewForbidden(a, fmt.Errorf("could not determine node from user %q", a.GetUserInfo().GetName()))
	}
	err := r.check(ctx, node, a)
	if err == nil {
		err = checkFinalizers(node, a)
	}
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return admission.NewForbidden(a, err)
}

// checkFinalizers keeps a node from holding up the end of what it writes: a Node that cannot
// be deleted keeps its pods, whose tokens stay good, and its name. Agents need no finalizers.
func checkFinalizers(node string, a admission.Attributes) error {
	if a.GetOperation() == admission.Delete {
		return nil
	}
	added := finalizersOf(a.GetObject()).Difference(finalizersOf(a.GetOldObject()))
	if added.Len() > 0 {
		return fmt.Errorf("node %q is not allowed to add finalizers: %s", node, strings.Join(sets.List(added), ", "))
	}
	return nil
}

func finalizersOf(obj runtime.Object) sets.Set[string] {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil // There is none.
	}
	return sets.New(m.GetFinalizers()...)
}

func (r *Restriction) check(ctx context.Context, node string, a admission.Attributes) error {
	switch a.GetResource().GroupResource() {
	case podResource:
		return r.checkPods(ctx, node, a)
	case nodeResource:
		return r.checkNode(ctx, node, a)
	case serviceAccountResource:
		if a.GetSubresource() == "token" && a.GetOperation() == admission.Create {
			return r.checkToken(ctx, node, a)
		}
	case leaseResource:
		if a.GetNamespace() != corev1.NamespaceNodeLease {
			return fmt.Errorf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
		}
		if nameIn(a) != node {
			return errors.New("can only access node lease with the same name as the requesting node")
		}
		return checkSmall(node, a)
	case csiNodeResource:
		if nameIn(a) != node {
			return errors.New("can only access CSINode with the same name as the requesting node")
		}
		return checkSmall(node, a)
	case claimResource:
		if a.GetSubresource() == "status" {
			return checkClaimStatus(node, a)
		}
	case resourceSliceResource:
		return checkSlice(node, a)
	case certificateRequestResource:
		return checkCertificateRequest(node, a)
	}
	return nil
}

func (r *Restriction) checkPods(ctx context.Context, node string, a admission.Attributes) error {
	switch a.GetSubresource() {
	case "":
		return r.checkPod(ctx, node, a)
	case "status":
		return checkPodStatus(node, a)
	case "eviction":
		return r.checkEviction(ctx, node, a)
	}
	return fmt.Errorf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.GetSubresource())
}

// nameIn is the name of what is written. Of something new it is not in the path.
func nameIn(a admission.Attributes) string {
	if obj, err := meta.Accessor(a.GetObject()); a.GetOperation() == admission.Create && err == nil {
		return obj.GetName()
	}
	return a.GetName()
}

func checkPodStatus(node string, a admission.Attributes) error {
	if a.GetOperation() != admission.Update {
		return fmt.Errorf("unexpected operation %q", a.GetOperation())
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	old, okOld := a.GetOldObject().(*corev1.Pod)
	switch {
	case !ok || !okOld:
		return unexpected(a.GetObject())
	case old.Spec.NodeName != node:
		return fmt.Errorf("node %q can only update pod status for pods with spec.nodeName set to itself", node)
	case !alike.Values(old.Labels, pod.Labels):
		return fmt.Errorf("node %q cannot update labels through pod status", node)
	case !alike.Values(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses):
		return fmt.Errorf("node %q cannot update resource claim statues", node) // in Kubernetes' own spelling
	case !alike.Values(old.Status.ExtendedResourceClaimStatus, pod.Status.ExtendedResourceClaimStatus):
		return fmt.Errorf("node %q cannot update extended resource claim status", node)
	}
	return checkPodReport(node, pod, old)
}

// checkClaimStatus lets a node say how large a volume is that it has let grow, and nothing else.
func checkClaimStatus(node string, a admission.Attributes) error {
	if a.GetOperation() != admission.Update {
		return fmt.Errorf("unexpected operation %q", a.GetOperation())
	}
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	old, okOld := a.GetOldObject().(*corev1.PersistentVolumeClaim)
	if !ok || !okOld {
		return unexpected(a.GetObject())
	}
	rest := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		c = c.DeepCopy()
		c.ResourceVersion, c.ManagedFields = "", nil
		c.Status.Capacity, c.Status.Conditions = nil, nil
		c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil
		return c
	}
	if before, after := rest(old), rest(claim); !alike.Values(before, after) {
		return fmt.Errorf(
			"node %q is not allowed to update fields other than status.quantity and status.conditions: %v",
			node, diff.Diff(before, after),
		)
	}
	return nil
}

// checkSlice lets a node offer its own devices, and change and take back no others. The authorizer has looked at what
// it changes; by now another node's slice may have the name. A slice stays with its node.
func checkSlice(node string, a admission.Attributes) error {
	var obj any
	switch a.GetOperation() {
	case admission.Create:
		obj = a.GetObject()
	case admission.Update, admission.Delete:
		obj = a.GetOldObject()
	default:
		return nil
	}
	slice, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return unexpected(obj)
	}
	if slice.Spec.NodeName == nil || *slice.Spec.NodeName != node {
		return fmt.Errorf(
			"can only %s ResourceSlice with the same NodeName as the requesting node", strings.ToLower(string(a.GetOperation())),
		)
	}
	return nil
}

func (r *Restriction) checkEviction(ctx context.Context, node string, a admission.Attributes) error {
	name := a.GetName()
	if eviction, ok := a.GetObject().(*policyv1.Eviction); ok && name == "" {
		name = eviction.Name
	}
	if name == "" {
		return errors.New("could not determine pod from request data")
	}
	pod, err := r.objects.GetPod(ctx, a.GetNamespace(), name)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName != node {
		return fmt.Errorf("node %s can only evict pods with spec.nodeName set to itself", node)
	}
	return nil
}

func unexpected(obj any) error {
	return apierrors.NewBadRequest(fmt.Sprintf("unexpected type %T", obj))
}
