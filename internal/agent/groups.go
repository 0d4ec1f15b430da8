package agent

import (
	"cmp"
	"context"
	"fmt"

	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/cri"
)

// layCgroups finds out who makes cgroups on this machine, and makes those of all pods. Its error says why no pod could
// start.
func (a *Agent) layCgroups(ctx context.Context, service internalapi.RuntimeService) error {
	told, err := cri.CgroupDriver(ctx, service)
	if err != nil {
		return err
	}
	if a.cfg.CgroupDriver, err = chooseDriver(cgroups.Driver(a.cfg.CgroupDriver), told); err != nil {
		return err
	}
	a.cgroups, err = cgroups.New(cgroups.Config{
		Driver: cgroups.Driver(a.cfg.CgroupDriver), Root: a.cfg.CgroupRoot, Node: a.cfg.NodeName, PodPIDs: a.cfg.PodPIDs,
	})
	if err != nil {
		return err
	}
	a.cfg.CgroupRoot = cmp.Or(a.cfg.CgroupRoot, a.cgroups.Root())
	return a.cgroups.Prepare()
}

// chooseDriver is the runtime's driver, and where that does not tell the one that was asked for.
func chooseDriver(asked, told cgroups.Driver) (string, error) {
	if asked != "" && told != "" && asked != told {
		return "", fmt.Errorf("cgroupDriver %q is asked for, and the container runtime has %q: leave cgroupDriver out, or set SystemdCgroup = %t in the runtime's configuration (containerd: /etc/containerd/config.toml) and restart it",
			asked, told, asked == cgroups.Systemd)
	}
	return string(cmp.Or(told, asked, cgroups.Cgroupfs)), nil
}
