// Package resolvconf says how pods resolve names: their resolv.conf and hosts file, and what they are called
// themselves.
package resolvconf

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits of a resolv.conf that every C library understands.
const (
	maxNameservers = 3
	maxSearches    = 32
	// maxSearchList is how many characters all domains to search have together, with the blanks between them.
	maxSearchList = 2048
	maxHostname   = 63
)

// DNS says how the pods of a node resolve names.
type DNS struct {
	// Servers are the addresses of the cluster's name servers; none means that pods resolve as the node does.
	Servers []string
	// Domain is the cluster's domain, such as cluster.local.
	Domain string
	// ResolvConf is the node's resolver file; empty means /etc/resolv.conf.
	ResolvConf string
}

// Config returns the pod's resolver configuration, by its policy.
func (d DNS) Config(pod *corev1.Pod) (*runtimeapi.DNSConfig, error) {
	policy := pod.Spec.DNSPolicy
	if policy == corev1.DNSClusterFirst && pod.Spec.HostNetwork {
		policy = corev1.DNSDefault
	}
	if policy == corev1.DNSClusterFirstWithHostNet || policy == "" {
		policy = corev1.DNSClusterFirst
	}
	if policy == corev1.DNSClusterFirst && len(d.Servers) == 0 {
		policy = corev1.DNSDefault
	}
	out := &runtimeapi.DNSConfig{}
	if policy != corev1.DNSNone {
		host, err := d.hostConfig()
		if err != nil {
			return nil, err
		}
		out = host
		if policy == corev1.DNSClusterFirst {
			out = d.clusterConfig(pod.Namespace, host)
		}
	}
	merge(out, pod.Spec.DNSConfig)
	out.Servers = out.Servers[:min(len(out.Servers), maxNameservers)]
	out.Searches = out.Searches[:min(len(out.Searches), maxSearches)]
	for len(strings.Join(out.Searches, " ")) > maxSearchList {
		out.Searches = out.Searches[:len(out.Searches)-1]
	}
	return out, nil
}

func (d DNS) clusterConfig(namespace string, host *runtimeapi.DNSConfig) *runtimeapi.DNSConfig {
	out := &runtimeapi.DNSConfig{Servers: slices.Clone(d.Servers), Options: []string{"ndots:5"}}
	if d.Domain != "" {
		out.Searches = []string{namespace + ".svc." + d.Domain, "svc." + d.Domain, d.Domain}
	}
	out.Searches = append(out.Searches, host.Searches...)
	return out
}

// merge adds what the pod itself says.
func merge(c *runtimeapi.DNSConfig, more *corev1.PodDNSConfig) {
	if more == nil {
		return
	}
	c.Servers = unique(append(c.Servers, more.Nameservers...))
	c.Searches = unique(append(c.Searches, more.Searches...))
	for _, o := range more.Options {
		c.Options = slices.DeleteFunc(c.Options, func(have string) bool {
			name, _, _ := strings.Cut(have, ":")
			return name == o.Name
		})
		if o.Value != nil && *o.Value != "" {
			c.Options = append(c.Options, o.Name+":"+*o.Value)
		} else {
			c.Options = append(c.Options, o.Name)
		}
	}
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func (d DNS) hostConfig() (*runtimeapi.DNSConfig, error) {
	path := d.ResolvConf
	if path == "" {
		path = "/etc/resolv.conf"
	}
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return &runtimeapi.DNSConfig{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the node's resolver file: %w", err)
	}
	defer func() { _ = f.Close() }()
	return parseResolvConf(f)
}

func parseResolvConf(r io.Reader) (*runtimeapi.DNSConfig, error) {
	out := &runtimeapi.DNSConfig{}
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			out.Servers = append(out.Servers, fields[1])
		case "search":
			out.Searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					s = strings.TrimSuffix(s, ".")
				}
				out.Searches = append(out.Searches, s)
			}
		case "options":
			out.Options = fields[1:]
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("read the node's resolver file: %w", err)
	}
	return out, nil
}

// Hostname is the pod's host name: its short name, or its full name if the pod wants that.
func (d DNS) Hostname(pod *corev1.Pod) string {
	short := pod.Name
	if pod.Spec.Hostname != "" {
		short = pod.Spec.Hostname
	}
	if pod.Spec.HostnameOverride != nil {
		short = *pod.Spec.HostnameOverride
	}
	if len(short) > maxHostname {
		short = strings.TrimRight(short[:maxHostname], "-.")
	}
	if full := d.fullName(pod, short); full != "" && pod.Spec.SetHostnameAsFQDN != nil && *pod.Spec.SetHostnameAsFQDN {
		return full
	}
	return short
}

// fullName is the name under which the pod is found by its subdomain; empty if it has none.
func (d DNS) fullName(pod *corev1.Pod, short string) string {
	if pod.Spec.Subdomain == "" || d.Domain == "" {
		return ""
	}
	return short + "." + pod.Spec.Subdomain + "." + pod.Namespace + ".svc." + d.Domain
}
