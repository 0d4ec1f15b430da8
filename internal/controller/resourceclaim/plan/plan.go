// Package plan decides about ResourceClaims: which are made for a pod from templates, and for whom a claim and its
// devices are kept. It is pure: what it is told is all that it knows.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// PodInput is a pod and what there is of what it names. What is missing is not in the maps.
type PodInput struct {
	Pod *corev1.Pod
	// Claims are by name: those that the pod names, those that its status names, and those that are to be made for it.
	Claims    map[string]*resourcev1.ResourceClaim
	Templates map[string]*resourcev1.ResourceClaimTemplate
}

// PodDecision is what is done for a pod, in this order.
type PodDecision struct {
	// Create are claims to make.
	Create []*resourcev1.ResourceClaim
	// Names are the claims behind those entries of the pod for which its status names none, or another.
	Names []corev1.PodResourceClaimStatus
	// Reserve are statuses to write: the pod has its node, and must be among those for whom the claim is kept.
	Reserve []*resourcev1.ResourceClaim
	// Trouble is why the pod does not get a claim.
	Trouble []string
}

// Pod decides for which entries of a pod claims are made, and which claims are kept for it.
func Pod(in PodInput) PodDecision {
	var d PodDecision
	if in.Pod.DeletionTimestamp != nil || podfacts.IsTerminal(in.Pod) {
		return d
	}
	for i := range in.Pod.Spec.ResourceClaims {
		entry := &in.Pod.Spec.ResourceClaims[i]
		if entry.ResourceClaimTemplateName != nil {
			d.fromTemplate(in, entry)
		}
		if in.Pod.Spec.NodeName != "" {
			d.reserve(in, entry)
		}
	}
	return d
}

// fromTemplate sees to it that the claim of an entry is there, and is named by the pod's status.
func (d *PodDecision) fromTemplate(in PodInput, entry *corev1.PodResourceClaim) {
	named, _, err := resourceclaim.Name(in.Pod, entry)
	if err == nil && named == nil {
		return // Somebody decided that the pod needs none.
	}
	if err == nil {
		if claim := in.Claims[*named]; claim != nil && metav1.IsControlledBy(claim, in.Pod) {
			return
		}
	}
	name := Name(in.Pod, entry)
	claim, template := in.Claims[name], in.Templates[*entry.ResourceClaimTemplateName]
	switch {
	case claim == nil && template == nil:
		d.Trouble = append(d.Trouble, fmt.Sprintf(
			"claim %s: resource claim template %q is not there", entry.Name, *entry.ResourceClaimTemplateName,
		))
		return
	case claim == nil:
		d.Create = append(d.Create, made(in.Pod, entry, template))
	case !metav1.IsControlledBy(claim, in.Pod):
		d.Trouble = append(d.Trouble, fmt.Sprintf(
			"claim %s: ResourceClaim %s is there and is not this pod's", entry.Name, name,
		))
		return
	case claim.DeletionTimestamp != nil:
		d.Trouble = append(d.Trouble, fmt.Sprintf("claim %s: ResourceClaim %s is being deleted", entry.Name, name))
		return
	}
	if err != nil || *named != name {
		d.Names = append(d.Names, corev1.PodResourceClaimStatus{Name: entry.Name, ResourceClaimName: &name})
	}
}

// Text is what a user is told of the trouble; "" if there is none. A pod may have thousands of entries, and an event is
// short.
func (d *PodDecision) Text() string {
	text := strings.Join(d.Trouble[:min(len(d.Trouble), troubleTold)], "; ")
	if more := len(d.Trouble) - troubleTold; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// troubleTold is of how many entries users are told.
const troubleTold = 3

// made is the claim that a pod gets from a template.
func made(p *corev1.Pod, entry *corev1.PodResourceClaim,
	t *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	annotations := maps.Clone(t.Spec.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resourcev1.PodResourceClaimAnnotation] = entry.Name
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: Name(p, entry), GenerateName: prefix(p.Name, entry.Name),
			Labels: maps.Clone(t.Spec.Labels), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: *t.Spec.Spec.DeepCopy(),
	}
}

// nameRoom is how long the beginning of a claim's name may be.
const nameRoom = 52

// Name is the name of the claim that is made for an entry of a pod. It follows from the pod, so whoever makes the claim
// twice, after a crash or before its own write shows, meets the first one.
func Name(p *corev1.Pod, entry *corev1.PodResourceClaim) string {
	sum := sha256.Sum256([]byte(string(p.UID) + "/" + entry.Name))
	return prefix(p.Name, entry.Name) + hex.EncodeToString(sum[:5])
}

// prefix is POD-ENTRY-, of which both are cut in proportion if it is too long. A pod's name is not cut behind a dot: no
// part of a name may begin with a hyphen.
func prefix(pod, entry string) string {
	if long := len(pod) + len(entry) + 2; long > nameRoom {
		pod, entry = strings.TrimRight(pod[:len(pod)*(nameRoom-2)/long], ".-"), entry[:len(entry)*(nameRoom-2)/long]
	}
	return pod + "-" + entry + "-"
}

// reserve adds a pod that has its node already to those for whom an allocated claim is kept. For other pods the
// scheduler does so.
func (d *PodDecision) reserve(in PodInput, entry *corev1.PodResourceClaim) {
	name, mine, err := resourceclaim.Name(in.Pod, entry)
	if err != nil || name == nil {
		return
	}
	claim := in.Claims[*name]
	if claim == nil || mine && !metav1.IsControlledBy(claim, in.Pod) || claim.Status.Allocation == nil ||
		claim.DeletionTimestamp != nil ||
		resourceclaim.IsReservedForPod(in.Pod, claim, false) || !resourceclaim.CanBeReserved(claim) {
		return
	}
	next := claim.DeepCopy()
	next.Status.ReservedFor = append(next.Status.ReservedFor, User(in.Pod))
	d.Reserve = append(d.Reserve, next)
}

// User is a pod as claims name those who use them.
func User(p *corev1.Pod) resourcev1.ResourceClaimConsumerReference {
	return resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID}
}

// Done says whether a pod uses its claims no more: it has ended, or goes without ever having had a node.
func Done(p *corev1.Pod) bool {
	return podfacts.IsTerminal(p) || p.DeletionTimestamp != nil && p.Spec.NodeName == ""
}

// ClaimInput is a claim and what is known of those who use it.
type ClaimInput struct {
	Claim *resourcev1.ResourceClaim
	// Done are the UIDs of pods in its reservations that are gone for sure, or use it no more.
	Done map[string]bool
	// OwnerDone says that the pod for which it was made is gone for sure, or uses it no more.
	OwnerDone bool
}

// ClaimDecision is what is done with a claim, in this order. After that the claim is looked at again.
type ClaimDecision struct {
	// Status is the claim with a status to write.
	Status *resourcev1.ResourceClaim
	// Release takes off the finalizer that keeps a claim while it has devices.
	Release bool
	Delete  bool
	Why     string
}

// Claim decides what becomes of a claim: who does not use it any more leaves, the last one gives back its devices, and
// one that was made for a pod goes with it.
func Claim(in ClaimInput) ClaimDecision {
	c := in.Claim
	remaining := slices.DeleteFunc(
		slices.Clone(c.Status.ReservedFor),
		func(r resourcev1.ResourceClaimConsumerReference) bool {
			return IsPod(r) && in.Done[string(r.UID)]
		},
	)
	if len(remaining) < len(c.Status.ReservedFor) {
		return left(c, remaining)
	}
	if len(remaining) > 0 {
		return ClaimDecision{Why: "pods use it"}
	}
	ours, deleted, has := protected(c), c.DeletionTimestamp != nil, c.Status.Allocation != nil
	switch {
	case ours && deleted && has:
		next := c.DeepCopy()
		next.Status.Allocation = nil
		return ClaimDecision{Status: next, Release: true, Why: "it is deleted, and nobody uses it"}
	case ours && !has && (deleted || in.OwnerDone):
		return ClaimDecision{Release: true, Why: "it has no devices any more"}
	case in.OwnerDone && !deleted:
		return ClaimDecision{Delete: true, Why: "its pod is done"}
	}
	return ClaimDecision{Why: "nothing to do"}
}

// left is what is written when pods do not use a claim any more. The last one gives back the devices, if they were
// given here.
func left(c *resourcev1.ResourceClaim, remaining []resourcev1.ResourceClaimConsumerReference) ClaimDecision {
	next, ours := c.DeepCopy(), protected(c)
	next.Status.ReservedFor = remaining
	if len(remaining) == 0 && ours {
		next.Status.Allocation = nil
	}
	return ClaimDecision{Status: next, Release: ours && next.Status.Allocation == nil, Why: "pods use it no more"}
}

// protected says whether a claim was given its devices by the scheduler, which protects it first.
func protected(c *resourcev1.ResourceClaim) bool {
	return slices.Contains(c.Finalizers, resourcev1.Finalizer)
}

// IsPod says whether a reservation is for a pod. Others are their makers' concern.
func IsPod(r resourcev1.ResourceClaimConsumerReference) bool {
	return r.APIGroup == "" && r.Resource == "pods"
}

// Released is a claim without the finalizer that keeps it while it has devices.
func Released(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	next := c.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
	return next
}
