package plan

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/loop/deadline"
	"github.com/everynode/everynode/internal/objects/nodestartup"
	"github.com/everynode/everynode/internal/objects/pod"
)

// leftOver is how long a node must have been ready until a pod counts that was made for an earlier node of that name,
// or before its machine started again: by then its agent has said how it really is.
const leftOver = 30 * time.Second

// Runs reports whether a DaemonSet with these rules is to run on the node once it has started. The node's own taint
// does not count, nor do those by which Kubernetes says how a node is: they go.
func Runs(rules *placement.Rules, n *corev1.Node) bool {
	verdict, _ := rules.Judge(bare(n, slices.DeleteFunc(nodestartup.With(n.Spec.Taints, nil), passes)))
	return verdict == placement.ShouldRun
}

// passes reports whether a taint is one by which Kubernetes says how a node is.
func passes(t corev1.Taint) bool {
	return strings.HasPrefix(t.Key, "node.kubernetes.io/") || strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/")
}

// bare is what rules read of a node that has these taints.
func bare(n *corev1.Node, taints []corev1.Taint) *corev1.Node {
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	out.Spec.Taints = taints
	return out
}

// keptBy says which taint keeps a DaemonSet that is to run on the node from coming there as yet; "" if none does. If it
// is the daemon itself that has the taint go, such as that of a node without a network, it never comes.
func keptBy(rules *placement.Rules, n *corev1.Node) string {
	verdict, why := rules.Judge(bare(n, nodestartup.With(n.Spec.Taints, nil)))
	if verdict == placement.ShouldRun {
		return ""
	}
	return why
}

// AvailableFrom returns from when on one of the pods makes the DaemonSet available on the node; zero if none does. A
// pod that is ready since later than now has a node whose clock is ahead: it is ready.
func AvailableFrom(n *corev1.Node, pods []*corev1.Pod, owner types.UID, minReady time.Duration,
	now time.Time) (from time.Time) {
	for _, p := range pods {
		ref := metav1.GetControllerOfNoCopy(p)
		if ref == nil || ref.UID != owner || p.DeletionTimestamp != nil {
			continue
		}
		if at := readyFrom(n, p, now); !at.IsZero() {
			from = deadline.Sooner(from, at.Add(minReady))
		}
	}
	return from
}

// readyFrom is since when a pod is ready, for a node that may have the name of an earlier one, or have started again;
// zero if it is not.
func readyFrom(n *corev1.Node, p *corev1.Pod, now time.Time) time.Time {
	since, ready := pod.ReadySince(p)
	if !ready {
		return time.Time{}
	}
	born := nodestartup.Born(n)
	fresh := !since.Before(born) || !p.CreationTimestamp.Time.Before(born)
	if since.After(now) {
		since = now
	}
	if !p.CreationTimestamp.After(now) { // else the server's clock was set back
		since = deadline.Later(since, p.CreationTimestamp.Time) // the node's clock may be behind
	}
	if fresh {
		return since
	}
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return deadline.Later(c.LastTransitionTime.Time, born).Add(leftOver)
		}
	}
	return time.Time{}
}

// DaemonOf says how a DaemonSet is on a node that has these daemons' pods. One that is being deleted is none any more.
func DaemonOf(n *corev1.Node, ds *appsv1.DaemonSet, rules *placement.Rules, pods []*corev1.Pod, now time.Time) Daemon {
	if ds.DeletionTimestamp != nil {
		return Daemon{Missing: true}
	}
	minReady := time.Duration(ds.Spec.MinReadySeconds) * time.Second
	d := Daemon{Elsewhere: !Runs(rules, n), From: AvailableFrom(n, pods, ds.UID, minReady, now)}
	if !d.Elsewhere && d.From.IsZero() {
		d.Kept = keptBy(rules, n)
	}
	return d
}
