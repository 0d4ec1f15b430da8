package plan

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Kinds of controllers whose number of pods is known.
const (
	KindDaemonSet   = "DaemonSet"
	KindStatefulSet = "StatefulSet"
	KindReplicaSet  = "ReplicaSet"
	KindDeployment  = "Deployment"

	KindReplicationController = "ReplicationController"
)

// Owners are the controllers of a namespace by name, at least those that its pods
// name, and the Deployments that those ReplicaSets name.
type Owners struct {
	DaemonSets   map[string]*appsv1.DaemonSet
	StatefulSets map[string]*appsv1.StatefulSet
	ReplicaSets  map[string]*appsv1.ReplicaSet
	Deployments  map[string]*appsv1.Deployment

	ReplicationControllers map[string]*corev1.ReplicationController
}

// Controller returns what controls an object, if it is a workload.
// The name is empty if nothing does.
func Controller(object metav1.Object) (kind, name string) {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || !inApps(ref) && !isOld(ref) {
		return "", ""
	}
	return ref.Kind, ref.Name
}

func inApps(ref *metav1.OwnerReference) bool {
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && group.Group == appsv1.GroupName
}

// isOld recognizes the one controller of pods that is not of apps.
func isOld(ref *metav1.OwnerReference) bool {
	return ref.APIVersion == corev1.SchemeGroupVersion.String() && ref.Kind == KindReplicationController
}

// scale adds up how many pods the pods' controllers want, each controller once,
// and counts the pods that have none.
func (o Owners) scale(pods []corev1.Pod) (total int64, unmanaged int, err error) {
	counted := map[types.UID]bool{} // both the pods' controllers and what stands behind them
	for i := range pods {
		p := &pods[i]
		ref := metav1.GetControllerOfNoCopy(p)
		if ref == nil {
			unmanaged++
			continue
		}
		if counted[ref.UID] {
			continue
		}
		if !known(ref) {
			return 0, 0, fmt.Errorf(
				"the number of pods wanted by %s %q, which controls pod %q, is not known", ref.Kind, ref.Name, p.Name,
			)
		}
		uid, replicas, found := o.find(ref)
		if !found {
			return 0, 0, fmt.Errorf("found no controllers for pod %q", p.Name)
		}
		if !counted[uid] {
			total += int64(replicas)
		}
		counted[ref.UID], counted[uid] = true, true
	}
	return total, unmanaged, nil
}

func known(ref *metav1.OwnerReference) bool {
	return isOld(ref) ||
		inApps(ref) && (ref.Kind == KindDaemonSet || ref.Kind == KindReplicaSet || ref.Kind == KindStatefulSet)
}

// find returns who decides about the number of pods, and that number.
func (o Owners) find(ref *metav1.OwnerReference) (uid types.UID, replicas int32, found bool) {
	switch {
	case ref.Kind == KindDaemonSet:
		if set := o.DaemonSets[ref.Name]; set != nil && set.UID == ref.UID {
			return set.UID, set.Status.DesiredNumberScheduled, true
		}
	case ref.Kind == KindStatefulSet:
		if set := o.StatefulSets[ref.Name]; set != nil && set.UID == ref.UID {
			return set.UID, ptr.Deref(set.Spec.Replicas, 1), true
		}
	case isOld(ref):
		if c := o.ReplicationControllers[ref.Name]; c != nil && c.UID == ref.UID {
			return c.UID, ptr.Deref(c.Spec.Replicas, 1), true
		}
	default:
		return o.findReplicaSet(ref)
	}
	return "", 0, false
}

// findReplicaSet returns the ReplicaSet, or the Deployment above it.
func (o Owners) findReplicaSet(ref *metav1.OwnerReference) (uid types.UID, replicas int32, found bool) {
	set := o.ReplicaSets[ref.Name]
	if set == nil || set.UID != ref.UID {
		return "", 0, false
	}
	above := metav1.GetControllerOfNoCopy(set)
	if above == nil || !inApps(above) || above.Kind != KindDeployment {
		return set.UID, ptr.Deref(set.Spec.Replicas, 1), true
	}
	deployment := o.Deployments[above.Name]
	if deployment == nil || deployment.UID != above.UID {
		return "", 0, false
	}
	return deployment.UID, ptr.Deref(deployment.Spec.Replicas, 1), true
}
