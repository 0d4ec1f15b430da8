package belongings

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is how this controller's objects refer to a DaemonSet.
var Kind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// OwnerOf returns the UID of the DaemonSet that controls the object, or "" when
// something else or nothing does.
func OwnerOf(obj metav1.Object) types.UID {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil || !isDaemonSetRef(ref) {
		return ""
	}
	return ref.UID
}

// isDaemonSetRef accepts every API group version that ever had DaemonSets.
func isDaemonSetRef(ref *metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	return ref.Kind == Kind.Kind && (group == Kind.Group || group == "extensions")
}

// Concerns reports whether an object can matter to any DaemonSet: one controls it
// or nothing does.
func Concerns(obj metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(obj)
	return ref == nil || isDaemonSetRef(ref)
}
