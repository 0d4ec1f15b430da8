package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// portWarnings compares the ports of all containers of a pod: they share one
// address, so the same port twice is at best said twice.
func portWarnings(containers []located) []string {
	type seen struct {
		port corev1.ContainerPort
		path *field.Path
	}
	type number struct {
		port     int32
		protocol corev1.Protocol
	}
	var w []string
	before := map[number][]seen{}
	for _, c := range containers {
		for i, p := range c.container.Ports {
			at := c.path.Child("ports").Index(i)
			if p.HostIP != "" && p.HostPort == 0 {
				w = append(w, fmt.Sprintf("%s: hostIP set without hostPort: %+v", at, p))
			}
			key := number{p.ContainerPort, p.Protocol}
			for _, o := range before[key] {
				if how := samePort(p, o.port); how != "" {
					w = append(w, fmt.Sprintf("%s: %s port definition with %s", at, how, o.path))
				}
			}
			before[key] = append(before[key], seen{p, at})
		}
	}
	return append(w, portNameWarnings(containers)...)
}

// samePort says how two definitions of the same container port get into each
// other's way.
func samePort(a, b corev1.ContainerPort) string {
	switch {
	case a.HostIP == b.HostIP && a.HostPort == b.HostPort:
		return "duplicate"
	case a.HostPort == 0 || b.HostPort == 0:
		return "overlapping"
	case a.HostPort == b.HostPort && (a.HostIP == "") != (b.HostIP == ""):
		return "dangerously ambiguous"
	}
	return ""
}

func portNameWarnings(containers []located) []string {
	var w []string
	first := map[string]*field.Path{}
	for _, c := range containers {
		for i, p := range c.container.Ports {
			at := c.path.Child("ports").Index(i)
			switch o, taken := first[p.Name]; {
			case p.Name == "":
			case taken:
				w = append(w, fmt.Sprintf("%s: duplicate port name %q with %s, services and probes that select ports by name will use %s", at, p.Name, o, o))
			default:
				first[p.Name] = at
			}
		}
	}
	return w
}
