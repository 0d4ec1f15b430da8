package ruleset

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/everynode/everynode/internal/network/proxy/changes"
)

// Verdicts about traffic that no endpoint of the node's choice takes.
const (
	refuse = "goto refuse"
	drop   = "drop"
)

// render makes the rules of one Service.
func (s *State) render(svc changes.Service) Table {
	t := newTable()
	for i := range svc.Ports {
		p := &svc.Ports[i]
		r := renderer{table: t, node: s.node, port: p, protocol: strings.ToLower(string(p.Protocol))}
		r.name = fmt.Sprintf("%s/%s/%s/%d", svc.Name.Namespace, svc.Name.Name, r.protocol, p.Port)
		r.inside()
		if p.Outside() {
			r.outside()
		}
	}
	return t
}

// renderer makes the rules of one port.
type renderer struct {
	table    Table
	node     Node
	port     *changes.Port
	protocol string
	name     string
}

func (r *renderer) chain(kind string, rules ...string) string {
	name := kind + "/" + r.name
	r.table.Chains[name] = rules
	return name
}

func (r *renderer) element(in string, key, verdict string) {
	r.table.Elements[Key{In: in, Key: key}] = verdict
}

func (r *renderer) at(ip netip.Addr, port uint16) string {
	return fmt.Sprintf("%s . %s . %d", ip, r.protocol, port)
}

// inside is traffic to the Service's own address.
func (r *renderer) inside() {
	p := r.port
	endpoints, kind := p.Cluster, "cluster"
	if p.InternalLocal {
		endpoints, kind = p.Local, "local"
	}
	if len(endpoints) == 1 && endpoints[0] == netip.AddrPortFrom(p.ClusterIP, p.Port) {
		return // The Service leads to its own address: the nodes hold it themselves.
	}
	r.element(clusterIPs, p.ClusterIP.String(), "")
	at := r.at(p.ClusterIP, p.Port)
	if len(endpoints) == 0 {
		r.element(deadAddresses, at, r.why())
		return
	}
	in := r.chain("in", "jump "+foreign, "goto "+r.balance(kind, endpoints))
	r.element(serviceAddresses, at, "goto "+in)
}

// why says what becomes of traffic without an endpoint to go to: refused if there is
// none anywhere; dropped if only this node has none.
func (r *renderer) why() string {
	if r.port.Anywhere {
		return drop
	}
	return refuse
}

// outside is traffic to node ports and addresses outside the cluster.
func (r *renderer) outside() {
	p := r.port
	usable := p.Cluster
	if p.ExternalLocal {
		usable = p.Local
	}
	var ex string
	if p.Anywhere {
		ex = r.chain("ex", r.externalRules()...)
	}
	publish := func(live, dead, key string) {
		if p.Anywhere {
			r.element(live, key, "goto "+ex)
		}
		if len(usable) == 0 {
			// What the rules for the node's own traffic left over.
			r.element(dead, key, r.why())
		}
	}
	if p.NodePort != 0 {
		publish(serviceNodePorts, deadNodePorts, fmt.Sprintf("%s . %d", r.protocol, p.NodePort))
	}
	for _, list := range [][]netip.Addr{p.ExternalIPs, p.Balancers} {
		for _, ip := range list {
			publish(serviceAddresses, deadAddresses, r.at(ip, p.Port))
		}
	}
	if len(p.Sources) > 0 && len(p.Balancers) > 0 {
		texts := make([]string, len(p.Sources))
		for i, source := range p.Sources {
			texts[i] = source.String()
		}
		wall := r.chain("wall", "ip saddr { "+strings.Join(texts, ", ")+" } return", "drop")
		for _, ip := range p.Balancers {
			r.element(walled, r.at(ip, p.Port), "goto "+wall)
		}
	}
}

// externalRules send traffic from outside to any endpoint, masqueraded so that the
// answer comes back this way; or, to keep the client's address, to this node's only.
// The node's own traffic and its pods' may always go anywhere.
func (r *renderer) externalRules() []string {
	p := r.port
	if !p.ExternalLocal {
		if len(p.Cluster) == 0 {
			return nil
		}
		return []string{"jump " + mark, "goto " + r.balance("cluster", p.Cluster)}
	}
	var rules []string
	if len(p.Cluster) > 0 {
		cluster := r.balance("cluster", p.Cluster)
		for _, pods := range r.node.Pods {
			rules = append(rules, fmt.Sprintf("ip saddr %s goto %s", pods, cluster))
		}
		rules = append(rules, "fib saddr type local jump "+mark, "fib saddr type local goto "+cluster)
	}
	if len(p.Local) > 0 {
		rules = append(rules, "goto "+r.balance("local", p.Local))
	}
	return rules
}

// balance makes the chain that picks one of the endpoints.
func (r *renderer) balance(kind string, endpoints []netip.AddrPort) string {
	var rules, verdicts []string
	for i, e := range endpoints {
		chain := r.endpoint(e)
		if r.port.Affinity > 0 {
			rules = append(rules, fmt.Sprintf("ip saddr @%s goto %s", r.memory(e), chain))
		}
		verdicts = append(verdicts, fmt.Sprintf("%d : goto %s", i, chain))
	}
	if len(endpoints) == 1 {
		rules = append(rules, "goto "+r.endpointName(endpoints[0]))
	} else {
		rules = append(rules, fmt.Sprintf("numgen random mod %d vmap { %s }", len(endpoints), strings.Join(verdicts, ", ")))
	}
	return r.chain(kind, rules...)
}

func (r *renderer) endpointName(e netip.AddrPort) string {
	return fmt.Sprintf("ep/%s/%s/%d", r.name, e.Addr(), e.Port())
}

// memory names the set of an endpoint's clients. The time is part of the name: a set
// cannot change it.
func (r *renderer) memory(e netip.AddrPort) string {
	name := fmt.Sprintf("clients/%d/%s/%s/%d", r.port.Affinity, r.name, e.Addr(), e.Port())
	r.table.Memories[name] = r.port.Affinity
	return name
}

// endpoint makes the chain that forwards to an endpoint.
func (r *renderer) endpoint(e netip.AddrPort) string {
	name := r.endpointName(e)
	// An endpoint that calls itself would answer itself, without the node translating back.
	rules := []string{fmt.Sprintf("ip saddr %s jump %s", e.Addr(), mark)}
	if r.node.Detour {
		for _, pods := range r.node.Pods {
			if pods.Contains(e.Addr()) {
				rules = []string{fmt.Sprintf("ip saddr %s jump %s", pods, mark)}
			}
		}
	}
	if r.port.Affinity > 0 {
		rules = append(rules, fmt.Sprintf("update @%s { ip saddr }", r.memory(e)))
	}
	rules = append(rules, fmt.Sprintf("meta l4proto %s dnat to %s", r.protocol, e))
	r.table.Chains[name] = rules
	return name
}
