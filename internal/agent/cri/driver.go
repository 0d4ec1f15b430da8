package cri

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cgroups"
)

// CgroupDriver asks the runtime who makes cgroups; empty if it does not tell. Containerd before 2.0 tells in its
// configuration.
func CgroupDriver(ctx context.Context, service internalapi.RuntimeService) (cgroups.Driver, error) {
	// Many runtimes do not know the question yet: its error is no news for the log.
	told, err := service.RuntimeConfig(klog.NewContext(ctx, klog.Logger{}))
	if grpcstatus.Code(err) == codes.Unimplemented {
		status, err := service.Status(ctx, true)
		if err != nil {
			return "", fmt.Errorf("ask the container runtime for its cgroup driver: %w", err)
		}
		return driverInConfig(status.GetInfo()["config"]), nil
	}
	if err != nil {
		return "", fmt.Errorf("ask the container runtime for its cgroup driver: %w", err)
	}
	if told.GetLinux() == nil {
		return "", nil
	}
	if told.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
		return cgroups.Systemd, nil
	}
	return cgroups.Cgroupfs, nil
}

// driverInConfig reads which driver containerd's way of running pods has, out of its configuration as it shows it;
// empty for other runtimes.
func driverInConfig(config string) cgroups.Driver {
	var c struct {
		Containerd struct {
			DefaultRuntimeName string `json:"defaultRuntimeName"`
			Runtimes           map[string]struct {
				Options struct{ SystemdCgroup bool } `json:"options"`
			} `json:"runtimes"`
		} `json:"containerd"`
	}
	if json.Unmarshal([]byte(config), &c) != nil {
		return ""
	}
	used, ok := c.Containerd.Runtimes[c.Containerd.DefaultRuntimeName]
	switch {
	case !ok:
		return ""
	case used.Options.SystemdCgroup:
		return cgroups.Systemd
	}
	return cgroups.Cgroupfs
}

// checkDriver says what is wrong if the runtime has another cgroup driver than the agent began with: it would refuse
// the pods' cgroups.
func (r *Runtime) checkDriver(ctx context.Context) (string, error) {
	driver, err := CgroupDriver(ctx, r.service)
	if own := r.cfg.Cgroups.Driver(); err == nil && driver != "" && driver != own {
		return fmt.Sprintf(
			"the container runtime has the cgroup driver %s since it was restarted, and no pod could start: the agent has %s; "+
				"drain the node and restart the agent, or set SystemdCgroup = %t again in the runtime's configuration "+
				"(containerd: /etc/containerd/config.toml)",
			driver, own, own == cgroups.Systemd,
		), nil
	}
	return "", err
}
