package metricsapi

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/everynode/everynode/internal/node/usage"
)

// nodeMetrics is the use of a node; false if its agent does not know yet.
func nodeMetrics(node *corev1.Node, s *usage.Summary) (metricsv1beta1.NodeMetrics, bool) {
	if s.Node.CPU == nil || s.Node.Memory == nil {
		return metricsv1beta1.NodeMetrics{}, false
	}
	return metricsv1beta1.NodeMetrics{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels, CreationTimestamp: s.Node.Memory.Time},
		Timestamp:  s.Node.CPU.Time, Window: whole(s.Node.CPU.Window), Usage: amounts(s.Node.CPU, s.Node.Memory),
	}, true
}

// podMetrics is the use of a pod; false if not all that is known of its containers is there yet.
func podMetrics(pod *corev1.Pod, u *usage.Pod) (metricsv1beta1.PodMetrics, bool) {
	out := metricsv1beta1.PodMetrics{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels},
	}
	for _, c := range u.Containers {
		if c.CPU == nil || c.Memory == nil {
			return out, false
		}
		if c.CPU.Time.After(out.Timestamp.Time) {
			out.Timestamp, out.Window, out.CreationTimestamp = c.CPU.Time, whole(c.CPU.Window), c.Memory.Time
		}
		out.Containers = append(out.Containers, metricsv1beta1.ContainerMetrics{
			Name:  c.Name,
			Usage: amounts(c.CPU, c.Memory),
		})
	}
	return out, len(out.Containers) > 0
}

func amounts(cpu *usage.CPU, memory *usage.Memory) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(cpu.UsageNanoCores), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(memory.WorkingSetBytes), resource.BinarySI),
	}
}

func whole(d metav1.Duration) metav1.Duration {
	return metav1.Duration{Duration: d.Round(time.Millisecond)}
}
