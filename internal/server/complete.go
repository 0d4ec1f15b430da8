package server

import (
	"errors"
	"fmt"
	"net"
)

// complete checks the options together with what the data folder says of this server, and fills
// in what follows from them. It writes nothing.
func (s *Server) complete() (err error) {
	if s.membership, err = readMembership(s.options.DataDir); err == nil {
		err = s.membership.apply(&s.options)
	}
	if err != nil {
		return err
	}
	s.options.useEncryption()
	o := s.options
	if _, s.service, err = net.ParseCIDR(o.ServiceCIDR); err != nil {
		return fmt.Errorf("the service CIDR %q is not a network such as 10.96.0.0/16", o.ServiceCIDR)
	}
	if s.pods, err = podNetworks(&o, s.service); err != nil {
		return err
	}
	if len(o.Listen) == 0 {
		return errors.New("no listen address is given")
	}
	if err := checkBalancers(o.Balancers); err != nil {
		return err
	}
	if s.settings, err = o.API.Complete(); err != nil {
		return err
	}
	if err = o.Backups.Check(); err != nil {
		return err
	}
	if o.Backups.Every > 0 && !s.settings.Embedded() {
		return errors.New("--backup-schedule is for the embedded database; an etcd of others is backed up with etcdctl snapshot save")
	}
	return nil
}
