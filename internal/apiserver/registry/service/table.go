package service

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/internal/apiserver/table"
)

var printer = table.Of(row,
	table.Name,
	table.Column{Name: "Type", Description: "How the Service is reached."},
	table.Column{Name: "Cluster-IP", Description: "Address inside the cluster."},
	table.Column{Name: "External-IP", Description: "Addresses outside the cluster."},
	table.Column{Name: "Port(s)", Description: "Ports, and the node ports that lead to them."},
	table.Age,
	table.Column{Name: "Selector", Wide: true, Description: "Labels of the pods that it leads to."},
)

func row(s *corev1.Service, now time.Time) []any {
	ip := "<none>"
	if len(s.Spec.ClusterIPs) > 0 {
		ip = s.Spec.ClusterIPs[0]
	}
	return []any{
		s.Name, string(s.Spec.Type), ip, externalIP(s), ports(s.Spec.Ports),
		table.Since(s.CreationTimestamp, now), labels.FormatLabels(s.Spec.Selector),
	}
}

func externalIP(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return table.OrNone(strings.Join(s.Spec.ExternalIPs, ","))
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		list := ingress(s)
		list = append(list, s.Spec.ExternalIPs...)
		if len(list) == 0 {
			return "<pending>"
		}
		return strings.Join(list, ",")
	}
	return "<unknown>"
}

func ingress(s *corev1.Service) []string {
	var list []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		name := in.IP
		if name == "" {
			name = in.Hostname
		}
		if name != "" && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

func ports(list []corev1.ServicePort) string {
	out := make([]string, len(list))
	for i, p := range list {
		if p.NodePort > 0 {
			out[i] = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		} else {
			out[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		}
	}
	return table.OrNone(strings.Join(out, ","))
}
