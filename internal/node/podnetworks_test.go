package node

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodNetworksAreToldByAnnotations(t *testing.T) {
	want := PodNetworks{Cluster: netip.MustParsePrefix("10.244.0.0/16"), NodeBits: 24}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: want.Annotations()}}
	if got, ok := PodNetworksOf(n); !ok || got != want {
		t.Errorf("read %v, %v; want %v", got, ok, want)
	}
	for _, broken := range []map[string]string{
		nil, {ClusterCIDRAnnotation: "10.244.0.0/16"}, {NodeMaskSizeAnnotation: "24"},
		{ClusterCIDRAnnotation: "everything", NodeMaskSizeAnnotation: "24"},
		{ClusterCIDRAnnotation: "10.244.0.0/16", NodeMaskSizeAnnotation: "15"},
		{ClusterCIDRAnnotation: "10.244.0.0/16", NodeMaskSizeAnnotation: "33"},
	} {
		n.Annotations = broken
		if got, ok := PodNetworksOf(n); ok {
			t.Errorf("%v was read as %v", broken, got)
		}
	}
}

func TestPartOfTheClustersNetwork(t *testing.T) {
	four := PodNetworks{Cluster: netip.MustParsePrefix("10.244.0.0/16"), NodeBits: 24}
	six := PodNetworks{Cluster: netip.MustParsePrefix("fd00:10::/48"), NodeBits: 64}
	for _, tc := range []struct {
		of   PodNetworks
		text string
		good bool
	}{
		{four, "10.244.7.0/24", true},
		{four, "10.244.255.0/24", true},
		{four, "10.245.0.0/24", false},
		{four, "10.244.0.0/16", false},
		{four, "10.244.7.0/25", false},
		{four, "10.244.7.1/24", false},
		{four, "0.0.0.0/0", false},
		{four, "10.0.0.1/32", false},
		{four, "::ffff:10.244.7.0/120", false},
		{four, "fd00:10:0:1::/64", false},
		{four, "", false},
		{four, "nonsense", false},
		{six, "fd00:10:0:1::/64", true},
		{six, "fd00:11:0:1::/64", false},
		{six, "10.244.7.0/24", false},
	} {
		if _, err := tc.of.Part(tc.text); (err == nil) != tc.good {
			t.Errorf("%q of %s: %v", tc.text, tc.of.Cluster, err)
		}
	}
}

func TestAge(t *testing.T) {
	at := func(name string, second int64) Age {
		return AgeOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(second, 0))}})
	}
	if !at("z", 1).Before(at("a", 2)) || at("a", 2).Before(at("z", 1)) || !at("a", 1).Before(at("b", 1)) || at("a", 1).Before(at("a", 1)) {
		t.Error("nodes are not ordered by creation, then by name")
	}
}
