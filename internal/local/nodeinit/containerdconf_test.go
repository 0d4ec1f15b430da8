package nodeinit

import (
	"strings"
	"testing"
)

func TestContainerdConfig(t *testing.T) {
	config := ContainerdConfig("pause:1", "native")
	for _, want := range []string{
		`sandbox_image = "pause:1"`, `snapshotter = "native"`, `bin_dir = "/opt/cni/bin"`, "restrict_oom_score_adj = true", "SystemdCgroup = false",
		`config_path = "/run/everynode/registries"`, `"io.containerd.timeout.shim.load" = "60s"`,
	} {
		if !strings.Contains(config, want) {
			t.Errorf("the configuration lacks %q", want)
		}
	}
}
