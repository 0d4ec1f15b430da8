package server

import (
	"net"
	"os"
	"slices"
)

func localIPs() (out []net.IP) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			out = append(out, n.IP)
		}
	}
	return out
}

// nextIP returns the address after a network's own: the one of the service kubernetes.
func nextIP(ip net.IP) net.IP {
	out := append(net.IP(nil), ip...)
	for i := len(out) - 1; i >= 0; i-- {
		out[i]++
		if out[i] != 0 {
			break
		}
	}
	return out
}

// addresses are the names and addresses that the serving certificate must hold.
func (s *Server) addresses() (names []string, ips []net.IP) {
	ips = append(ips, nextIP(s.service.IP))
	for _, address := range slices.Concat([]string{s.options.AdvertiseAddress}, s.options.Balancers, s.options.Listen) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		if ip := net.ParseIP(host); ip != nil {
			if !ip.IsUnspecified() {
				ips = append(ips, ip)
				continue
			}
			ips = append(ips, localIPs()...)
		} else if host != "" {
			names = append(names, host)
		}
	}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	return names, ips
}
