// Package hostport knows which ports of a node pods take, and which two pods cannot have side by side. It is pure.
package hostport

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// anyIP is the address that stands for all of a node's addresses.
const anyIP = "0.0.0.0"

// Port is one port of the node that a pod takes.
type Port struct {
	Protocol corev1.Protocol
	IP       string
	Port     int32
}

type protocolPort struct {
	protocol corev1.Protocol
	port     int32
}

// Held counts the holders of each host port of one node. Two pods may hold the same port when someone bound them
// past the scheduler, hence a count.
type Held struct {
	holders map[protocolPort]map[string]int
}

// Conflicts reports whether port cannot be taken beside what is taken: same protocol and number, and the same address
// or either on all addresses.
func (p *Held) Conflicts(port Port) bool {
	byIP := p.holders[protocolPort{port.Protocol, port.Port}]
	if len(byIP) == 0 {
		return false
	}
	return port.IP == anyIP || byIP[anyIP] > 0 || byIP[port.IP] > 0
}

// Add counts one more holder of the port.
func (p *Held) Add(port Port) {
	key := protocolPort{port.Protocol, port.Port}
	if p.holders == nil {
		p.holders = make(map[protocolPort]map[string]int)
	}
	if p.holders[key] == nil {
		p.holders[key] = make(map[string]int, 1)
	}
	p.holders[key][port.IP]++
}

// Len is how many ports are taken; those of one protocol and number count once, whatever their addresses.
func (p *Held) Len() int { return len(p.holders) }

// Clone returns a copy that shares nothing with p.
func (p *Held) Clone() Held {
	var c Held
	for key, byIP := range p.holders {
		if c.holders == nil {
			c.holders = make(map[protocolPort]map[string]int, len(p.holders))
		}
		c.holders[key] = maps.Clone(byIP)
	}
	return c
}

// Remove counts one holder of the port less.
func (p *Held) Remove(port Port) {
	key := protocolPort{port.Protocol, port.Port}
	byIP := p.holders[key]
	byIP[port.IP]--
	if byIP[port.IP] == 0 {
		delete(byIP, port.IP)
	}
	if len(byIP) == 0 {
		delete(p.holders, key)
	}
}

// Of lists the ports of the node that the pod's containers and sidecars take.
func Of(spec *corev1.PodSpec) []Port {
	var ports []Port
	for i := range spec.Containers {
		ports = appendHostPorts(ports, &spec.Containers[i])
	}
	for i := range spec.InitContainers {
		if podfacts.IsSidecar(&spec.InitContainers[i]) {
			ports = appendHostPorts(ports, &spec.InitContainers[i])
		}
	}
	return ports
}

func appendHostPorts(ports []Port, container *corev1.Container) []Port {
	for _, port := range container.Ports {
		if port.HostPort <= 0 {
			continue
		}
		taken := Port{Protocol: port.Protocol, IP: port.HostIP, Port: port.HostPort}
		if taken.Protocol == "" {
			taken.Protocol = corev1.ProtocolTCP
		}
		if taken.IP == "" {
			taken.IP = anyIP
		}
		ports = append(ports, taken)
	}
	return ports
}
