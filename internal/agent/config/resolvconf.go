package config

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"

	mdns "github.com/miekg/dns"
)

// findResolvConf returns the resolver file below root that also helps pods: the name server that systemd-resolved runs
// on the machine's loopback interface is out of their reach.
func findResolvConf(root string) string {
	path := filepath.Join(root, "etc/resolv.conf")
	resolved := filepath.Join(root, "run/systemd/resolve/resolv.conf")
	if _, err := os.Stat(resolved); err != nil || !onlyLoopback(path) {
		return path
	}
	return resolved
}

// onlyLoopback reports whether all name servers of a resolver file, at least one, are on the loopback interface.
func onlyLoopback(path string) bool {
	content, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	config, err := mdns.ClientConfigFromReader(bytes.NewReader(content))
	if err != nil || len(config.Servers) == 0 {
		return false
	}
	for _, text := range config.Servers {
		if ip, err := netip.ParseAddr(text); err != nil || !ip.IsLoopback() {
			return false
		}
	}
	return true
}
