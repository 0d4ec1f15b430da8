package config

import (
	"errors"
	"fmt"
	"net"

	"github.com/everynode/everynode/internal/apiserver/options"
	"github.com/everynode/everynode/internal/node"
)

// Completed are options that fit together, and what follows from them.
type Completed struct {
	Options
	// Settings are those of the API.
	Settings options.Completed
	// Service is where Service addresses come from.
	Service *net.IPNet
	// Pods is where pod addresses come from.
	Pods node.PodNetworks
}

// Complete checks the options. It writes nothing.
func (o *Options) Complete() (c Completed, err error) {
	o.useEncryption()
	c.Options = *o
	_, c.Service, err = net.ParseCIDR(o.ServiceCIDR)
	if err != nil {
		return c, fmt.Errorf("the service CIDR %q is not a network such as 10.96.0.0/16", o.ServiceCIDR)
	}
	c.Pods, err = podNetworks(o, c.Service)
	if err != nil {
		return c, err
	}
	if len(o.Listen) == 0 {
		return c, errors.New("no listen address is given")
	}
	err = checkBalancers(o.Balancers)
	if err != nil {
		return c, err
	}
	c.Settings, err = o.API.Complete()
	if err != nil {
		return c, err
	}
	err = o.Backups.Check()
	if err != nil {
		return c, err
	}
	if o.Backups.Every > 0 && !c.Settings.Embedded() {
		return c, errors.New("--backup-schedule is for the embedded database; " +
			"an etcd of others is backed up with etcdctl snapshot save")
	}
	return c, nil
}
