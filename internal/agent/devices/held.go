package devices

import "k8s.io/apimachinery/pkg/types"

// Held is one device, and the container that has it if there is one.
type Held struct {
	Container, Resource, ID string
	// Nodes are the NUMA nodes that it is near to, none if its plugin does not say.
	Nodes []int64
}

// Held lists the devices that the pod has.
func (m *Manager) Held(pod types.UID) []Held {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Held
	for _, g := range m.ledger.Of(pod) {
		nodes := map[string][]int64{}
		for _, d := range m.ledger.Devices(g.Resource) {
			nodes[d.ID] = d.Nodes
		}
		for _, id := range g.Devices {
			out = append(out, Held{g.Container, g.Resource, id, nodes[id]})
		}
	}
	return out
}

// Healthy lists the devices that pods can have.
func (m *Manager) Healthy() []Held {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Held
	for _, name := range m.ledger.Resources() {
		for _, d := range m.ledger.Devices(name) {
			if d.Healthy {
				out = append(out, Held{Resource: name, ID: d.ID, Nodes: d.Nodes})
			}
		}
	}
	return out
}
