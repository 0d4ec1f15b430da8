package nodeinit

import (
	"fmt"
)

// ContainerdConfig is the configuration of a node's containerd, in the format
// that 1.6 and everything after it read. Paths are those inside the node.
//
// restrict_oom_score_adj keeps pods startable where CAP_SYS_RESOURCE is
// missing; the snapshotters and the tracing that are switched off would only
// probe and warn. A containerd that starts ends what belongs to a shim that
// does not answer in time. Its own five seconds are too few for a machine
// under load.
func ContainerdConfig(sandboxImage, snapshotter string) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
]

[timeouts]
  "io.containerd.timeout.shim.load" = "60s"

[grpc]
  address = %[1]q

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[2]q
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[4]q
    conf_dir = "/etc/cni/net.d"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = %[3]q
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %[5]q
`, ContainerdSocket, sandboxImage, snapshotter, CNIBin, Registries)
}
