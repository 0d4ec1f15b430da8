package agent

import "github.com/everynode/everynode/internal/proxy"

// newServices prepares the node's service proxy; nil if Services are somebody else's.
func (a *Agent) newServices(s *sources) (*proxy.Proxy, error) {
	if a.cfg.ForeignServices {
		return nil, nil
	}
	return proxy.New(proxy.Config{NodeName: a.cfg.NodeName, Services: s.services, EndpointSlices: s.slices, Nodes: s.node, Clock: a.clk})
}
