package server

import (
	"context"
	"path"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/internal/apiserver/bootstrap"
	"github.com/everynode/everynode/internal/server/backups/schedule"
	"github.com/everynode/everynode/internal/server/election"
	"github.com/everynode/everynode/internal/server/loops"
	"github.com/everynode/everynode/internal/storage/members"
)

// work runs the control loops until ctx ends.
func (s *Server) work(ctx context.Context) error {
	metrics := &lent{Registerer: s.options.Metrics}
	defer metrics.takeBack()
	return loops.Run(ctx, s.loops(metrics.orNil()))
}

// loops is what the control loops work with.
func (s *Server) loops(metrics prometheus.Registerer) loops.Config {
	o := &s.options
	c := loops.Config{
		API: s.api, PKI: s.pki, Service: s.service, Pods: s.pods, Restored: s.restored != "",
		SigningDuration: o.SigningDuration, NoDaemonSetController: o.NoDaemonSetController,
		BindDaemonsLater: o.BindDaemonsLater,
		RecordDecisions:  o.RecordDecisions, SimulatedNodes: o.SimulatedNodes, Faults: o.Faults, Metrics: metrics,
	}
	if o.Backups.Every > 0 {
		c.Backups = func(client kubernetes.Interface, events record.EventRecorder, metrics prometheus.Registerer,
		) (func(context.Context) error, error) {
			return schedule.New(o.Backups, backedUp{s}, client, events, metrics)
		}
	}
	return c
}

func (s *Server) beginTurn(ctx context.Context, revision int64) (*members.Turn, error) {
	if s.external != nil {
		return s.external.TakeTurn(ctx, s.servers.Name(), s.loopsLeaseKey(), revision)
	}
	return s.etcd.TakeTurn(ctx, s.loopsLeaseKey(), revision)
}

// loopsLeaseKey is where the election's Lease is in the database.
func (s *Server) loopsLeaseKey() string {
	return path.Join(s.settings.Etcd.StorageConfig.Prefix, coordinationv1.GroupName, "leases",
		members.LoopsNamespace, members.LoopsLease)
}

// candidate is this server in the election of whose control loops work.
func (s *Server) candidate() *election.Candidate {
	return &election.Candidate{
		Name:     s.servers.Name(),
		API:      func() *restclient.Config { return s.api.ConfigFor(bootstrap.ManagerAccount()) },
		Begin:    s.beginTurn,
		Work:     s.work,
		GivesWay: func(ctx context.Context) string { return s.servers.GivesWay(ctx, s.strange) },
	}
}

// strange returns the objects of our own kinds that hold what this server does not know.
func (s *Server) strange(ctx context.Context) ([]string, error) {
	client, err := everynode.NewForConfig(s.api.ConfigFor(bootstrap.ManagerAccount()))
	if err != nil {
		return nil, err
	}
	return client.Strange(ctx)
}
