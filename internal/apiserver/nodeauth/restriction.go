package nodeauth

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// Restriction refuses what a node writes about others.
type Restriction struct {
	*admission.Handler
	pods Pods
}

var _ admission.ValidationInterface = &Restriction{}

// NewRestriction makes the admission plugin.
func NewRestriction(pods Pods) *Restriction {
	return &Restriction{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete), pods: pods}
}

var (
	podResource            = corev1.Resource("pods")
	nodeResource           = corev1.Resource("nodes")
	serviceAccountResource = corev1.Resource("serviceaccounts")
	leaseResource          = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}
	csiNodeResource        = schema.GroupResource{Group: storagev1.GroupName, Resource: "csinodes"}
)

// Validate implements admission.ValidationInterface.
func (r *Restriction) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	node, isNode := nodeOf(a.GetUserInfo())
	if !isNode {
		return nil
	}
	if node == "" {
		return admission.NewForbidden(a, fmt.Errorf("could not determine node from user %q", a.GetUserInfo().GetName()))
	}
	err := r.check(ctx, node, a)
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return admission.NewForbidden(a, err)
}

func (r *Restriction) check(ctx context.Context, node string, a admission.Attributes) error {
	switch a.GetResource().GroupResource() {
	case podResource:
		switch a.GetSubresource() {
		case "":
			return checkPod(node, a)
		case "status":
			return checkPodStatus(node, a)
		case "eviction":
			return r.checkEviction(ctx, node, a)
		}
		return fmt.Errorf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.GetSubresource())
	case nodeResource:
		return checkNode(node, a)
	case serviceAccountResource:
		if a.GetSubresource() == "token" {
			return r.checkToken(ctx, node, a)
		}
	case leaseResource:
		return checkLease(node, a)
	case csiNodeResource:
		return checkCSINode(node, a)
	}
	return nil
}

// checkPod lets a node report the pods that it runs on its own account, and
// finish the deletion of those that are bound to it.
func checkPod(node string, a admission.Attributes) error {
	switch a.GetOperation() {
	case admission.Create:
		pod, ok := a.GetObject().(*corev1.Pod)
		if !ok {
			return unexpected(a.GetObject())
		}
		if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
			return fmt.Errorf("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node)
		}
		if pod.Spec.NodeName != node {
			return fmt.Errorf("node %q can only create pods with spec.nodeName set to itself", node)
		}
		if used := referencesOfMirror(pod); len(used) > 0 {
			return fmt.Errorf("node %q can not create pods that reference secrets, configmaps or service accounts", node)
		}
		for _, owner := range pod.OwnerReferences {
			if owner.Kind != "Node" || owner.Name != node {
				return fmt.Errorf("node %q can only create pods with an owner reference set to itself", node)
			}
		}
		return nil
	case admission.Delete:
		pod, ok := a.GetOldObject().(*corev1.Pod)
		if !ok {
			return unexpected(a.GetOldObject())
		}
		if pod.Spec.NodeName != node {
			return fmt.Errorf("node %q can only delete pods with spec.nodeName set to itself", node)
		}
		return nil
	}
	return fmt.Errorf("unexpected operation %q, node %q can only create and delete mirror pods", a.GetOperation(), node)
}

// referencesOfMirror looks at a mirror pod as if it were an ordinary one.
func referencesOfMirror(pod *corev1.Pod) references {
	used := references{}
	used.addPod(pod)
	return used
}

func checkPodStatus(node string, a admission.Attributes) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	old, okOld := a.GetOldObject().(*corev1.Pod)
	if !ok || !okOld {
		return unexpected(a.GetObject())
	}
	if old.Spec.NodeName != node {
		return fmt.Errorf("node %q can only update pod status for pods with spec.nodeName set to itself", node)
	}
	if !equality.Semantic.DeepEqual(old.Labels, pod.Labels) {
		return fmt.Errorf("node %q cannot update labels through pod status", node)
	}
	return nil
}

func (r *Restriction) checkEviction(ctx context.Context, node string, a admission.Attributes) error {
	name := a.GetName()
	if eviction, ok := a.GetObject().(*policyv1.Eviction); ok && name == "" {
		name = eviction.Name
	}
	pod, err := r.pods.GetPod(ctx, a.GetNamespace(), name)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName != node {
		return fmt.Errorf("node %s can only evict pods with spec.nodeName set to itself", node)
	}
	return nil
}

// checkToken lets a node get tokens only for pods that are bound to it.
func (r *Restriction) checkToken(ctx context.Context, node string, a admission.Attributes) error {
	request, ok := a.GetObject().(*authenticationv1.TokenRequest)
	if !ok {
		return unexpected(a.GetObject())
	}
	ref := request.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return errors.New("node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return errors.New("node requested token with a pod binding without a uid")
	}
	pod, err := r.pods.GetPod(ctx, a.GetNamespace(), ref.Name)
	if err != nil {
		return err
	}
	if pod.UID != ref.UID {
		return fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	}
	if pod.Spec.NodeName != node {
		return errors.New("node requested token bound to a pod scheduled on a different node")
	}
	return nil
}

func checkLease(node string, a admission.Attributes) error {
	name := a.GetName()
	if lease, ok := a.GetObject().(*coordinationv1.Lease); ok && a.GetOperation() == admission.Create {
		name = lease.Name
	}
	if a.GetNamespace() != corev1.NamespaceNodeLease || name != node {
		return errors.New("can only access node lease with the same name as the requesting node")
	}
	return nil
}

func checkCSINode(node string, a admission.Attributes) error {
	name := a.GetName()
	if drivers, ok := a.GetObject().(*storagev1.CSINode); ok && a.GetOperation() == admission.Create {
		name = drivers.Name
	}
	if name != node {
		return errors.New("can only access CSINode with the same name as the requesting node")
	}
	return nil
}

func unexpected(obj any) error {
	return apierrors.NewBadRequest(fmt.Sprintf("unexpected type %T", obj))
}
