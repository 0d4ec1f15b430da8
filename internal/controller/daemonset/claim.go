package daemonset

import (
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// controllerKind is how this controller's objects refer to a DaemonSet.
var controllerKind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

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
func isDaemonSetRef(ref *metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	return ref.Kind == controllerKind.Kind && (group == controllerKind.Group || group == "extensions")
}

// concerns tells whether an object can matter to any DaemonSet: one controls it
// or nothing does.
func concerns(obj metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(obj)
	return ref == nil || isDaemonSetRef(ref)
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
