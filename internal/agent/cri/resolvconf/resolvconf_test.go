package resolvconf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// What a pod has of name servers and domains is no more than each C library reads: too long a file may be read as none.
func TestConfigKeepsToItsLimits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	err := os.WriteFile(file, []byte("nameserver 192.0.2.1\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for long, want := range map[int]int{10: maxSearches, 100: 2048 / 101} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{DNSPolicy: corev1.DNSDefault, DNSConfig: &corev1.PodDNSConfig{}}}
		for i := range 40 {
			pod.Spec.DNSConfig.Searches = append(pod.Spec.DNSConfig.Searches, fmt.Sprintf("%0*d", long, i))
			pod.Spec.DNSConfig.Nameservers = append(pod.Spec.DNSConfig.Nameservers, fmt.Sprintf("192.0.2.%d", i+2))
		}
		got, err := DNS{ResolvConf: file}.Config(pod)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Servers) != maxNameservers || got.Servers[0] != "192.0.2.1" {
			t.Errorf("name servers are %v", got.Servers)
		}
		if len(got.Searches) != want || len(strings.Join(got.Searches, " ")) > maxSearchList || !strings.HasSuffix(got.Searches[0], "00") {
			t.Errorf("of domains of %d characters %d stay, want %d", long, len(got.Searches), want)
		}
	}
}
