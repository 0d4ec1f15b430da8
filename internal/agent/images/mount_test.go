package images

import "testing"

func TestMountsImages(t *testing.T) {
	for _, c := range []struct {
		name, version string
		can           bool
	}{
		{"containerd", "1.6.20~ds1", false}, {"containerd", "1.7.24", false}, {"containerd", "2.0.4", false},
		{"containerd", "2.1.0", true}, {"containerd", "v2.2.1", true}, {"cri-o", "1.30.9", false}, {"cri-o", "1.33.0", true},
		{"containerd", "unknown", true}, {"other", "0.1", true},
	} {
		if err := MountedBy(c.name, c.version); (err == nil) != c.can {
			t.Errorf("%s %s: %v, want that it can: %t", c.name, c.version, err, c.can)
		}
	}
}
