package nodeauth

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/everynode/everynode/internal/apiserver/podspec/references"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// checkPod lets a node report the pods that it runs on its own account, and
// finish the deletion of those that are bound to it.
func (r *Restriction) checkPod(ctx context.Context, node string, a admission.Attributes) error {
	switch a.GetOperation() {
	case admission.Create:
		pod, ok := a.GetObject().(*corev1.Pod)
		if !ok {
			return unexpected(a.GetObject())
		}
		return r.checkMirror(ctx, node, pod)
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

func (r *Restriction) checkMirror(ctx context.Context, node string, pod *corev1.Pod) error {
	if !podfacts.IsMirror(pod) {
		return fmt.Errorf(
			"pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node,
		)
	}
	if pod.Spec.NodeName != node {
		return fmt.Errorf("node %q can only create pods with spec.nodeName set to itself", node)
	}
	if err := r.checkOwner(ctx, node, pod.OwnerReferences); err != nil {
		return err
	}
	if what := referredTo(&pod.Spec); what != "" {
		return fmt.Errorf("node %q can not create pods that reference %s", node, what)
	}
	return nil
}

// checkOwner lets a mirror pod belong to the node and to nobody else. Otherwise a
// controller would count it, or take it for its own.
func (r *Restriction) checkOwner(ctx context.Context, node string, owners []metav1.OwnerReference) error {
	if len(owners) > 1 {
		return fmt.Errorf("node %q can only create pods with a single owner reference set to itself", node)
	}
	if len(owners) == 0 {
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", node)
	}
	owner := owners[0]
	if owner.APIVersion != corev1.SchemeGroupVersion.String() || owner.Kind != "Node" || owner.Name != node {
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", node)
	}
	if owner.Controller == nil || !*owner.Controller {
		return fmt.Errorf("node %q can only create pods with a controller owner reference set to itself", node)
	}
	if owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
		return fmt.Errorf("node %q must not set blockOwnerDeletion on an owner reference", node)
	}
	self, err := r.objects.GetNode(ctx, node)
	if err != nil {
		return err
	}
	if owner.UID != self.UID {
		return fmt.Errorf("node %s UID mismatch: expected %s got %s", node, owner.UID, self.UID)
	}
	return nil
}

// referredTo names one kind of API object that the pod refers to, none if there is none.
func referredTo(spec *corev1.PodSpec) string {
	has := map[string]bool{}
	references.Of(spec, func(resource, _ string) { has[resource] = true })
	for _, resource := range []string{references.ServiceAccounts, references.Secrets, references.ConfigMaps} {
		if has[resource] {
			return resource
		}
	}
	if len(spec.ResourceClaims) > 0 {
		return "resourceclaims"
	}
	for i := range spec.Volumes {
		if what := volumeRefersTo(&spec.Volumes[i].VolumeSource); what != "" {
			return what
		}
	}
	return ""
}

func volumeRefersTo(v *corev1.VolumeSource) string {
	switch {
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)"
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)"
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims"
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)"
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if what := projectionRefersTo(&v.Projected.Sources[i]); what != "" {
				return what
			}
		}
	}
	return ""
}

func projectionRefersTo(s *corev1.VolumeProjection) string {
	switch {
	case s.ServiceAccountToken != nil:
		return "serviceaccounts (via projected volumes)"
	case s.ClusterTrustBundle != nil:
		return "clustertrustbundles"
	case s.PodCertificate != nil:
		return "podcertificates"
	}
	return ""
}
