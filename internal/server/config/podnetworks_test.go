package config

import (
	"net"
	"strings"
	"testing"
)

func TestPodNetworks(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    string // "NETWORK /BITS", or part of the complaint
	}{
		"real machines":      {Options{}, "10.244.0.0/16 /24"},
		"a larger network":   {Options{ClusterCIDR: "10.128.1.0/9"}, "10.128.0.0/9 /24"},
		"smaller parts":      {Options{NodeMaskSize: 26}, "10.244.0.0/16 /26"},
		"simulated":          {Options{SimulatedNodes: 1000}, "10.128.0.0/9 /24"},
		"as many as /24 has": {Options{SimulatedNodes: 32768}, "10.128.0.0/9 /24"},
		"one more":           {Options{SimulatedNodes: 32769}, "10.128.0.0/9 /25"},
		"fifty thousand":     {Options{SimulatedNodes: 50_000}, "10.128.0.0/9 /25"},
		"too many": {Options{SimulatedNodes: 65537},
			"65537 simulated nodes need as many pod networks, and 10.128.0.0/9 has 65536 of /25; set --cluster-cidr"},
		"too many for what is set": {Options{SimulatedNodes: 17, ClusterCIDR: "10.0.0.0/20", NodeMaskSize: 24},
			"10.0.0.0/20 has 16 of /24"},
		"smaller by itself":    {Options{SimulatedNodes: 17, ClusterCIDR: "10.0.0.0/20"}, "10.0.0.0/20 /25"},
		"part larger than all": {Options{ClusterCIDR: "10.0.0.0/28"}, "from /28 to /30"},
		"part without a pod":   {Options{NodeMaskSize: 31}, "--node-cidr-mask-size 31"},
		"negative":             {Options{NodeMaskSize: -1}, "--node-cidr-mask-size -1"},
		"no network":           {Options{ClusterCIDR: "pods"}, `"pods"`},
		"IPv6":                 {Options{ClusterCIDR: "fd00::/48"}, `"fd00::/48"`},
		"Services inside": {Options{ClusterCIDR: "10.0.0.0/8"},
			"pods (10.0.0.0/8) and Services (10.96.0.0/16) must not share addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			_, services, err := net.ParseCIDR("10.96.0.0/16")
			if err != nil {
				t.Fatal(err)
			}
			got, err := podNetworks(&c.options, services)
			said := ""
			if err != nil {
				said = err.Error()
			} else {
				said = got.Cluster.String() + " /" + got.Annotations()["everynode.io/node-cidr-mask-size"]
			}
			if err == nil && said != c.want || !strings.Contains(said, c.want) {
				t.Errorf("got %q, want %q", said, c.want)
			}
		})
	}
}
