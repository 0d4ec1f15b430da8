package warnings

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// portWarnings compares the ports of all containers of a pod: they share one
// address, so the same port twice is at best said twice.
func portWarnings(containers []located) []string {
	var w []string
	n := 0
	for _, c := range containers {
		n += len(c.container.Ports)
	}
	before := make(portIndex, keysOfPort*n)
	collisions, number := 0, 0
	for _, c := range containers {
		path := c.path.Child("ports")
		for i := range c.container.Ports {
			p := seenPort{&c.container.Ports[i], path, i, number}
			if p.port.HostIP != "" && p.port.HostPort == 0 {
				w = append(w, fmt.Sprintf("%s: hostIP set without hostPort: %+v", p.at(), *p.port))
			}
			if collisions == maxCollisions {
				continue
			}
			others := before.collidingWith(p.port)
			others = others[:min(len(others), maxCollisions-collisions)]
			for _, o := range others {
				w = append(w, fmt.Sprintf("%s: %s port definition with %s", p.at(), samePort(p.port, o.port), o.at()))
			}
			collisions += len(others)
			before.add(p)
			number++
		}
	}
	return append(w, portOfName(containers, n)...)
}

// seenPort is a port with its place: the path of its list and the index there.
type seenPort struct {
	port          *corev1.ContainerPort
	path          *field.Path
	index, number int
}

func (s seenPort) at() *field.Path { return s.path.Index(s.index) }

// portKey is what ports have in common: container port and protocol always, host port and host IP unless they are any.
type portKey struct {
	port, hostPort int32
	protocol       corev1.Protocol
	hostIP         string
}

const (
	anyPort = -1
	anyIP   = "*"
)

// portIndex finds the ports that get in the way of another without a look at those that do not. Of
// each key it keeps as many as there can be warnings.
type portIndex map[portKey][]seenPort

// keysOfPort is how many keys a port has.
const keysOfPort = 3

func (x portIndex) add(s seenPort) {
	p := s.port
	for _, key := range [keysOfPort]portKey{
		{p.ContainerPort, anyPort, p.Protocol, anyIP},
		{p.ContainerPort, p.HostPort, p.Protocol, anyIP},
		{p.ContainerPort, p.HostPort, p.Protocol, p.HostIP},
	} {
		if len(x[key]) < maxCollisions {
			x[key] = append(x[key], s)
		}
	}
}

// collidingWith returns the ports before p of which samePort has something to say, in their order.
func (x portIndex) collidingWith(p *corev1.ContainerPort) []seenPort {
	with := func(hostPort int32, hostIP string) []seenPort {
		return x[portKey{p.ContainerPort, hostPort, p.Protocol, hostIP}]
	}
	var found []seenPort
	switch {
	case p.HostPort == 0:
		return with(anyPort, anyIP)
	case p.HostIP == "":
		found = slices.Concat(with(0, anyIP), with(p.HostPort, anyIP))
	default:
		found = slices.Concat(with(0, anyIP), with(p.HostPort, ""), with(p.HostPort, p.HostIP))
	}
	slices.SortFunc(found, func(a, b seenPort) int { return a.number - b.number })
	return found
}

// samePort says how two definitions of the same container port get into each
// other's way, of which it is known that they do.
func samePort(a, b *corev1.ContainerPort) string {
	switch {
	case a.HostIP == b.HostIP && a.HostPort == b.HostPort:
		return "duplicate"
	case a.HostPort == 0 || b.HostPort == 0:
		return "overlapping"
	}
	return "dangerously ambiguous"
}

// portOfName warns of names that several of the n ports have.
func portOfName(containers []located, n int) []string {
	var w []string
	first := make(map[string]seenPort, n)
	for _, c := range containers {
		path := c.path.Child("ports")
		for i := range c.container.Ports {
			p := seenPort{port: &c.container.Ports[i], path: path, index: i}
			switch o, taken := first[p.port.Name]; {
			case p.port.Name == "":
			case taken:
				w = append(w, fmt.Sprintf(
					"%s: duplicate port name %q with %s, services and probes that select ports by name will use %s",
					p.at(), p.port.Name, o.at(), o.at(),
				))
			default:
				first[p.port.Name] = p
			}
		}
	}
	return w
}
