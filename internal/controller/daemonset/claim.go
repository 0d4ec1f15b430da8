package daemonset

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// claim is what a DaemonSet does about a pod or revision of its namespace.
type claim uint8

const (
	notMine claim = iota // leave it alone
	mine                 // it is controlled by the DaemonSet and matches
	adopt                // it has no controller and matches: take it
	release              // it is controlled by the DaemonSet and does not match: let it go
)

// controllerKind is how this controller's objects refer to a DaemonSet.
var controllerKind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// judgeClaim decides about one object. A DaemonSet that is being deleted neither
// takes nor lets go; an object that is being deleted is not taken.
func judgeClaim(ds *appsv1.DaemonSet, selector labels.Selector, obj metav1.Object) claim {
	ref := metav1.GetControllerOfNoCopy(obj)
	matches := selector.Matches(labels.Set(obj.GetLabels()))
	switch {
	case ref != nil && ref.UID != ds.UID:
		return notMine
	case ref != nil && matches:
		return mine
	case ref != nil && ds.DeletionTimestamp == nil:
		return release
	case ref == nil && matches && ds.DeletionTimestamp == nil && obj.GetDeletionTimestamp() == nil:
		return adopt
	}
	return notMine
}

// ownerOf returns the UID of the DaemonSet that controls the object, or "" when
// something else or nothing does.
func ownerOf(obj metav1.Object) types.UID {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil || !isDaemonSetRef(ref) {
		return ""
	}
	return ref.UID
}

// isDaemonSetRef accepts every API group version that ever had DaemonSets.
func isDaemonSetRef(ref *metav1.OwnerReference) bool { return ref.Kind == controllerKind.Kind }

// concerns tells whether an object can matter to any DaemonSet: one controls it
// or nothing does.
func concerns(obj metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(obj)
	return ref == nil || isDaemonSetRef(ref)
}

// adoptPatch makes the DaemonSet the controller of the object. The UID in it is
// a precondition.
func adoptPatch(ds *appsv1.DaemonSet, obj metav1.Object) []byte {
	return mustJSON(map[string]any{"metadata": map[string]any{
		"uid":             obj.GetUID(),
		"ownerReferences": []metav1.OwnerReference{*metav1.NewControllerRef(ds, controllerKind)},
	}})
}

// releasePatch takes the DaemonSet off the owners of the object. The UID in it is
// a precondition.
func releasePatch(ds *appsv1.DaemonSet, obj metav1.Object) []byte {
	return mustJSON(map[string]any{"metadata": map[string]any{
		"uid":             obj.GetUID(),
		"ownerReferences": []any{map[string]any{"$patch": "delete", "uid": ds.UID}},
	}})
}

// labelPatch sets the label that says which revision an object belongs to.
func labelPatch(hash string) []byte {
	return mustJSON(map[string]any{"metadata": map[string]any{
		"labels": map[string]string{appsv1.ControllerRevisionHashLabelKey: hash},
	}})
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("daemonset: a plain map does not marshal: " + err.Error())
	}
	return b
}
