package server

import (
	"context"
	"fmt"

	"github.com/everynode/everynode/internal/apiserver/clusterapi"
	"github.com/everynode/everynode/internal/server/backups"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/membership"
	"github.com/everynode/everynode/internal/storage/backup"
)

// backedUp makes backups of the server that runs.
type backedUp struct{ *Server }

// Take implements apiserver.Backups and schedule.Source.
func (b backedUp) Take(ctx context.Context) (clusterapi.Backup, error) { return b.take(ctx) }

// Disputed implements schedule.Source.
func (b backedUp) Disputed() error { return b.etcd.Disputed() }

// take makes a snapshot, one at a time.
func (s *Server) take(ctx context.Context) (*backups.Snapshot, error) {
	select {
	case s.copying <- struct{}{}:
		defer func() { <-s.copying }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another backup that is being made: %w", ctx.Err())
	}
	if err := folder.HaveRoom(s.options.DataDir, s.etcd.SnapshotSize()); err != nil {
		return nil, err
	}
	taken, err := backups.Take(ctx, s.options.DataDir, s.settings.Etcd.EncryptionProviderConfigFilepath, s.etcd.Snapshot)
	if err != nil {
		return nil, err
	}
	taken.From(backups.Origin{Server: s.servers.Name(), Servers: len(s.etcd.Members()), Start: backup.Start{
		Listen: s.options.Listen, AdvertiseAddress: s.options.AdvertiseAddress, PeerAddress: s.options.PeerAddress,
		ServerName: s.options.Name, ServiceCIDR: s.options.ServiceCIDR, ClusterCIDR: s.pods.Cluster.String(),
		NodeMaskSize: s.pods.NodeBits, EtcdPrefix: s.settings.Etcd.StorageConfig.Prefix,
	}})
	return taken, nil
}

// TakeStopped makes a backup of the data folder of a server that does not run, whose
// database stays as it is. With backups.ErrRunning one does.
func TakeStopped(ctx context.Context, dataDir string) (clusterapi.Backup, error) {
	m, err := membership.Read(dataDir)
	if err != nil {
		return nil, err
	}
	of := backups.Origin{Server: membership.ServerName(""), Servers: 1}
	if m != nil {
		of = backups.Origin{Server: m.Name, Servers: max(1, len(m.Known)), Start: backup.Start{
			ServerName: m.Name, ServiceCIDR: m.ServiceCIDR, ClusterCIDR: m.ClusterCIDR, NodeMaskSize: m.NodeMaskSize,
			EtcdPrefix: m.Prefix,
		}}
	}
	taken, err := backups.TakeStopped(ctx, dataDir, of)
	if err != nil {
		return nil, err
	}
	return taken, nil
}
