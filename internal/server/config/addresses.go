package config

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

// CertificateFor returns the names and addresses that the serving certificate must hold.
func (c *Completed) CertificateFor() (names []string, ips []net.IP) {
	ips = append(ips, nextIP(c.Service.IP))
	for _, address := range slices.Concat([]string{c.AdvertiseAddress}, c.Balancers, c.Listen) {
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
	host, err := os.Hostname()
	if err == nil {
		names = append(names, host)
	}
	return names, ips
}
