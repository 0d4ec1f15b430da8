package garbagecollector

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/garbagecollector/graph"
)

// Every patch carries the UID, so that it fails instead of changing an object
// that took over the name.

type metaPatch struct {
	Metadata patchedMeta `json:"metadata"`
}

type patchedMeta struct {
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	OwnerReferences any       `json:"ownerReferences,omitempty"`
	Finalizers      *[]string `json:"finalizers,omitempty"`
}

type deletedReference struct {
	Directive string    `json:"$patch"`
	UID       types.UID `json:"uid"`
}

// stripPatch is a strategic merge patch that removes the references to owners.
func stripPatch(uid types.UID, owners []types.UID) []byte {
	refs := make([]deletedReference, 0, len(owners))
	for _, owner := range owners {
		refs = append(refs, deletedReference{Directive: "delete", UID: owner})
	}
	return encode(patchedMeta{UID: uid, OwnerReferences: refs})
}

// unblockPatch is a strategic merge patch after which no reference of o blocks its owner.
func unblockPatch(o graph.Object) []byte {
	no := false
	var refs []metav1.OwnerReference
	for _, ref := range o.Owners {
		if ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
			ref.BlockOwnerDeletion = &no
			refs = append(refs, ref)
		}
	}
	return encode(patchedMeta{UID: o.UID, OwnerReferences: refs})
}

// ownersPatch is a merge patch that writes the whole list of references.
func ownersPatch(uid types.UID, resourceVersion string, owners []metav1.OwnerReference) []byte {
	if owners == nil {
		owners = []metav1.OwnerReference{}
	}
	return encode(patchedMeta{UID: uid, ResourceVersion: resourceVersion, OwnerReferences: owners})
}

// finalizersPatch is a merge patch that writes the whole list of finalizers.
func finalizersPatch(uid types.UID, resourceVersion string, finalizers []string) []byte {
	if finalizers == nil {
		finalizers = []string{}
	}
	return encode(patchedMeta{UID: uid, ResourceVersion: resourceVersion, Finalizers: &finalizers})
}

func encode(m patchedMeta) []byte {
	body, err := json.Marshal(metaPatch{Metadata: m})
	if err != nil {
		panic(err) // strings, booleans and lists of them always encode
	}
	return body
}
