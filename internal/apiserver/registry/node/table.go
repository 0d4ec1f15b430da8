package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/apiserver/table"
)

var printer = table.Of(row,
	table.Name,
	table.Column{Name: "Status", Description: "Whether the node is ready, and whether it takes new pods."},
	table.Column{Name: "Roles", Description: "What the node is there for."},
	table.Age,
	table.Column{Name: "Version", Description: "Version of the node's agent."},
	table.Column{Name: "Internal-IP", Wide: true, Description: "Address inside the cluster."},
	table.Column{Name: "External-IP", Wide: true, Description: "Address outside the cluster."},
	table.Column{Name: "OS-Image", Wide: true, Description: "Operating system of the node."},
	table.Column{Name: "Kernel-Version", Wide: true, Description: "Kernel of the node, and its architecture."},
	table.Column{Name: "Container-Runtime", Wide: true, Description: "Container runtime of the node."},
)

func row(n *corev1.Node, now time.Time) []any {
	info := n.Status.NodeInfo
	kernel := orUnknown(info.KernelVersion)
	if info.Architecture != "" {
		kernel = fmt.Sprintf("%s (%s)", kernel, info.Architecture)
	}
	return []any{
		n.Name, status(n), table.OrNone(strings.Join(roles(n), ",")), table.Since(n.CreationTimestamp, now),
		info.KubeletVersion,
		address(n, corev1.NodeInternalIP), address(n, corev1.NodeExternalIP),
		orUnknown(info.OSImage), kernel, orUnknown(info.ContainerRuntimeVersion),
	}
}

func status(n *corev1.Node) string {
	s := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		s = "NotReady"
		if c.Status == corev1.ConditionTrue {
			s = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		s += ",SchedulingDisabled"
	}
	return s
}

// roles come from two styles of labels.
func roles(n *corev1.Node) []string {
	var out []string
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok && role != "" {
			out = append(out, role)
		} else if key == "kubernetes.io/role" && value != "" {
			out = append(out, value)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func address(n *corev1.Node, t corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return "<none>"
}

func orUnknown(s string) string {
	if s == "" {
		return "<unknown>"
	}
	return s
}
