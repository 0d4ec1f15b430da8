package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/everynode/everynode/internal/apiserver"
	"github.com/everynode/everynode/internal/apiserver/inprocess"
	"github.com/everynode/everynode/internal/apiserver/insidedoor"
	"github.com/everynode/everynode/internal/apiserver/storages"
	"github.com/everynode/everynode/internal/server/agreement"
	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/internal/storage/etcd/external"
	"github.com/everynode/everynode/internal/storage/members"
)

// openDatabase starts the database of this process, or finds out whether the etcd can
// be used that the options name.
func (s *Server) openDatabase(ctx context.Context, config *apiserver.Config) error {
	if !s.settings.Embedded() {
		at := s.settings.Etcd.StorageConfig
		err := external.Probe(ctx, at)
		if err == nil {
			config.Stored, err = external.Stored(at.Transport)
		}
		if err == nil {
			s.external, err = external.Open(at)
		}
		if err != nil {
			return err
		}
		config.OpenStorage = s.external.Open
		own := members.Settings{
			ServiceCIDR: s.service.String(), ClusterCIDR: s.pods.Cluster.String(), NodeMaskSize: s.pods.NodeBits,
		}
		s.agreement = agreement.New(s.options.DataDir, own, s.pods.Cluster, s.external)
		return s.agreement.Check(ctx)
	}
	peers, err := s.servers.Peers()
	if err != nil {
		return err
	}
	database, err := etcd.Start(ctx, etcd.Options{
		Dir: filepath.Join(s.options.DataDir, "etcd"), NoFsync: s.options.NoFsync, Keep: s.options.KeepHistory,
		Peers:  peers,
		Writer: writerOf,
	})
	if err != nil && s.servers.Member() {
		return s.servers.Refused(err)
	}
	if err != nil {
		return err
	}
	s.etcd = database
	s.servers.Use(database)
	s.lentMetrics.Registerer = s.options.Metrics
	for _, metric := range database.Metrics() {
		if s.options.Metrics == nil {
			break
		}
		err = s.lentMetrics.Register(metric)
		if err != nil {
			return fmt.Errorf("show the size of the database: %w", err)
		}
	}
	config.OpenStorage, config.OpenReserving, config.Stored = database.Open, database.OpenReserving, database.Stored()
	config.Members, config.Backups = s.servers, backedUp{s}
	config.OpenHot = storages.Hot(database.OpenHot)
	if peers != nil {
		config.Quorum = database.Quorum
	}
	return nil
}

// makeAPI makes the API server, which reads the database.
func (s *Server) makeAPI(ctx context.Context, config apiserver.Config) (err error) {
	if s.etcd == nil {
		s.api, err = apiserver.New(config)
		if err != nil {
			return err
		}
		return s.agreement.Agree(ctx)
	}
	return s.etcd.During(func() (err error) {
		s.restored, err = s.etcd.Restored(ctx)
		if err != nil {
			return err
		}
		config.Restored = s.restored
		s.api, err = apiserver.New(config)
		return err
	})
}

func (s *Server) watchDatabase(ctx context.Context) error {
	err := s.etcd.Failed(ctx)
	if err == nil || errors.Is(err, etcd.ErrRemoved) {
		return err
	}
	return fmt.Errorf("the database in %s stopped: %w", s.options.DataDir, err)
}

// databaseLost is closed when an embedded database cannot go on.
func (s *Server) databaseLost() <-chan struct{} {
	if s.etcd == nil {
		return nil
	}
	return s.etcd.Lost()
}

// writerOf names who has a share of what can be written to the database. The server's own control loops may
// write as much as there is to do.
func writerOf(ctx context.Context) string {
	writer, ok := request.UserFrom(ctx)
	if !ok || inprocess.Is(ctx) || insidedoor.Inside(ctx) {
		return ""
	}
	return writer.GetName()
}
