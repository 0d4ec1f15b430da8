package fit

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Devices answers questions about the claims of pods to devices.
type Devices interface {
	// Ask returns nil for a pod without claims.
	Ask(pod *corev1.Pod) DeviceQuestion
}

// DeviceQuestion is about the claims of one pod.
type DeviceQuestion interface {
	// Problem says why the pod fits on no node whatever; "" if that is not so.
	Problem() string
	// Missing says why a node cannot have the pod; "" if it can. Of the node only its name and its labels are looked at.
	Missing(node *corev1.Node) string
}

// FollowDevices has nodes asked for the devices of pods' claims. A cluster for which it is not called takes no notice of such claims.
func (c *Cluster) FollowDevices(d Devices) { c.devices = d }

// Object is the node as an API object with its name and its labels, for those who ask about no more.
func (n *Node) Object() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
}

func (q *Question) devices() DeviceQuestion {
	if !q.askedDevices {
		q.askedDevices = true
		if q.cluster.devices != nil && q.pod.Object != nil {
			q.deviceQuestion = q.cluster.devices.Ask(q.pod.Object)
		}
	}
	return q.deviceQuestion
}

// checkDevices: the node must be within reach of the devices that the pod's claims have, and have such as they lack.
func checkDevices(q *Question, node *trialNode) []Reason {
	asked := q.devices()
	if asked == nil {
		return nil
	}
	if text := asked.Missing(node.Object()); text != "" {
		return fails(DynamicResources, text, "", true)
	}
	return nil
}
