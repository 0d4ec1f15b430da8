package fit

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/everynode/everynode/internal/fit/hostport"
	"github.com/everynode/everynode/internal/fit/podaffinity"
	"github.com/everynode/everynode/internal/fit/resources"
	"github.com/everynode/everynode/internal/fit/volumes"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Pod is what the rules need to know of a pod, computed once. It is never changed after NewPod.
type Pod struct {
	// Object is the API object, shared and read only, of a pod that waits for a node. A Cluster does not keep it: of a
	// pod that has its node nobody asks for more than what follows.
	Object     *corev1.Pod
	Namespace  string
	Name       string
	UID        types.UID
	Generation int64
	Labels     map[string]string
	// Controller is the UID of the object that manages the pod, "" for none.
	Controller types.UID
	// Priority is the admitted priority, 0 when none was given.
	Priority    int32
	Terminating bool
	// Started is when the pod began to run; zero if it has not.
	Started time.Time
	// Requests is what the pod asks for; Comparable the same with gaps filled, for comparing nodes.
	Requests   resources.Amounts
	Comparable resources.Amounts
	HostPorts  []hostport.Port

	disks []volumes.Disk
	// claims are those that its volumes are from.
	claims []volumes.Claim
	// repels are the pods that it does not want near it. If readable is false one of these terms cannot be read.
	repels   []*podaffinity.Term
	readable bool
}

// NewPod computes the facts of a pod.
func NewPod(object *corev1.Pod) *Pod {
	p := &Pod{
		Object:    object,
		Namespace: object.Namespace, Name: object.Name, UID: object.UID, Generation: object.Generation,
		Labels:      object.Labels,
		Controller:  controller(object),
		Priority:    schedulinghelpers.PodPriority(object),
		Terminating: object.DeletionTimestamp != nil,
		Started:     started(object),
		Requests:    resources.OfPod(&object.Spec, resources.FromList),
		Comparable:  resources.OfPod(&object.Spec, resources.WithDefaults),
		HostPorts:   hostport.Of(&object.Spec),
		disks:       volumes.Disks(&object.Spec),
		claims:      volumes.Claims(object),
	}
	if podfacts.Resizing(object) {
		p.Requests = resources.FromList(podfacts.Reserved(object))
	}
	p.repels, p.readable = podaffinity.ParseAll(requiredAntiAffinity(&object.Spec), object.Namespace)
	return p
}

// String is namespace/name, for messages and dumps.
func (p *Pod) String() string { return p.Namespace + "/" + p.Name }

// ClaimKeys are the pod's claims, as namespace/name.
func (p *Pod) ClaimKeys() []string { return p.withClaims().ClaimKeys() }

func (p *Pod) withClaims() volumes.Pod {
	return volumes.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Claims: p.claims}
}

// SamePod reports whether two objects of one pod on one node say the same to the rules. The spec counts as unchanged
// while the generation is, and what the pod was given while it is what it asks for.
func SamePod(a, b *corev1.Pod) bool {
	return a.Generation != 0 && a.Generation == b.Generation &&
		(a.DeletionTimestamp != nil) == (b.DeletionTimestamp != nil) &&
		controller(a) == controller(b) && started(a).Equal(started(b)) && maps.Equal(a.Labels, b.Labels) &&
		!podfacts.Resizing(a) && !podfacts.Resizing(b)
}

// Alike reports whether a node says the same to two pods of which each depends on that node alone.
func (p *Pod) Alike(other *Pod) bool {
	a, b := &p.Object.Spec, &other.Object.Spec
	// For how long a pod bears a taint is nothing to a node that is asked.
	same := func(t, u corev1.Toleration) bool { return t.MatchToleration(&u) }
	return p.Priority == other.Priority && a.NodeName == b.NodeName && p.Requests.Equal(other.Requests) &&
		slices.Equal(p.HostPorts, other.HostPorts) && maps.Equal(a.NodeSelector, b.NodeSelector) &&
		slices.EqualFunc(a.Tolerations, b.Tolerations, same) &&
		equality.Semantic.DeepEqual(nodeAffinity(a), nodeAffinity(b))
}

func nodeAffinity(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity
}

func controller(object *corev1.Pod) types.UID {
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
		return ref.UID
	}
	return ""
}

func started(object *corev1.Pod) time.Time {
	if object.Status.StartTime == nil {
		return time.Time{}
	}
	return object.Status.StartTime.Time
}

func requiredAntiAffinity(spec *corev1.PodSpec) []corev1.PodAffinityTerm {
	if spec.Affinity == nil || spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func requiredAffinity(spec *corev1.PodSpec) []corev1.PodAffinityTerm {
	if spec.Affinity == nil || spec.Affinity.PodAffinity == nil {
		return nil
	}
	return spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}
