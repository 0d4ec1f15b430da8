package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/apiserver"
	"github.com/everynode/everynode/internal/backup"
	"github.com/everynode/everynode/internal/datadir"
	"github.com/everynode/everynode/internal/encryption"
	"github.com/everynode/everynode/internal/etcd"
	"github.com/everynode/everynode/internal/etcd/offline"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/sharedkeys"
	"github.com/everynode/everynode/internal/version"
)

const (
	// pkiPart begins the names of the parts of a backup that are keys and certificates.
	pkiPart = "pki/"
	// keysChanged is how often a backup is begun anew because keys were replaced meanwhile.
	keysChanged = 3
)

// ErrRunning says that a server uses the data folder.
var ErrRunning = errors.New("a server uses the data folder")

// backupPart reports whether a backup has parts of that name besides the database.
func backupPart(name string) bool {
	if file, ok := strings.CutPrefix(name, pkiPart); ok {
		return pki.ClusterFile(file)
	}
	return name == filepath.Base(encryption.File("")) || name == folder.EncryptionFile
}

// OpenBackup reads the beginning of a backup.
func OpenBackup(r io.Reader, l backup.Lock) (*backup.Reader, error) {
	b, err := backup.Open(r, l, backupPart)
	if err != nil {
		return nil, err
	}
	if m := b.Manifest; m.Data > datadir.Version {
		return nil, fmt.Errorf("the backup is of everynode %s, whose data has version %d, and this is everynode %s, which knows data up to version %d; use that version, or a newer one",
			m.Everynode, m.Data, version.Version, datadir.Version)
	}
	return b, nil
}

// ResealBackup writes a backup that a server has sent, which is not encrypted, under a lock.
func ResealBackup(w io.Writer, l backup.Lock, from io.Reader) (backup.Manifest, error) {
	return backup.Reseal(w, l, from, backupPart)
}

// snapshot is what a backup is made of. It has no name on the disk, and ends with the process.
type snapshot struct {
	manifest backup.Manifest
	files    map[string][]byte
	database *os.File
}

// Manifest implements apiserver.Backup.
func (s *snapshot) Manifest() backup.Manifest { return s.manifest }

// Write implements apiserver.Backup.
func (s *snapshot) Write(w io.Writer, l backup.Lock) error {
	return backup.Write(w, l, s.manifest, func(name string) (io.Reader, error) {
		if name != backup.Database {
			return bytes.NewReader(s.files[name]), nil
		}
		_, err := s.database.Seek(0, io.SeekStart)
		return s.database, err
	})
}

// Close implements apiserver.Backup.
func (s *snapshot) Close() error { return s.database.Close() }

// takeSnapshot gathers what belongs into a backup of a data folder. Keys that are
// replaced meanwhile have it begin anew: the database must not need a key that is not there.
func takeSnapshot(ctx context.Context, dataDir, configuration string, copyDatabase func(context.Context, io.Writer) error) (*snapshot, error) {
	for range keysChanged {
		before, err := backupFiles(dataDir, configuration)
		if err != nil {
			return nil, err
		}
		s := &snapshot{files: before}
		if err := s.spool(ctx, dataDir, copyDatabase); err != nil {
			return nil, err
		}
		after, err := backupFiles(dataDir, configuration)
		if err == nil && maps.EqualFunc(before, after, bytes.Equal) {
			return s, s.describe(dataDir)
		}
		if err = errors.Join(err, s.Close()); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the cluster's keys are being replaced; make the backup when that is done")
}

// spool puts the database into a file that nobody else can open.
func (s *snapshot) spool(ctx context.Context, dir string, copyDatabase func(context.Context, io.Writer) error) error {
	f, err := os.CreateTemp(dir, scratchPrefix)
	if err != nil {
		return fmt.Errorf("make a file for the backup: %w", err)
	}
	sum := sha256.New()
	if err = os.Remove(f.Name()); err == nil {
		err = copyDatabase(ctx, io.MultiWriter(f, sum))
	}
	var size int64
	if err == nil {
		size, err = f.Seek(0, io.SeekEnd)
	}
	if err == nil {
		s.manifest.Revision, err = offline.Revision("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.database = f
	s.manifest.Files = []backup.File{{Name: backup.Database, Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))}}
	return nil
}

func (s *snapshot) describe(dataDir string) (err error) {
	m := &s.manifest
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		m.Files = append(m.Files, backup.Part(name, s.files[name]))
	}
	m.Format, m.Data, m.Created = backup.Format, datadir.Version, time.Now().UTC().Truncate(time.Second)
	m.Everynode, m.Kubernetes = version.Version, version.Kubernetes()
	if m.Cluster, err = pki.ReadCAHash(filepath.Join(dataDir, "pki")); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// backupFiles reads the keys and the configuration of a data folder, by the names that
// they have in a backup. configuration is the file of an operator about encryption, if any.
func backupFiles(dataDir, configuration string) (map[string][]byte, error) {
	keys, err := pki.ExportCluster(filepath.Join(dataDir, "pki"))
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for name, content := range keys {
		out[pkiPart+name] = content
	}
	stored, err := encryption.Read(encryption.File(dataDir))
	if err != nil {
		return nil, err
	}
	// Of a backup that cannot be started nobody would know, and good ones would go for it.
	if err := (sharedkeys.Set{Cluster: keys, Stored: stored}).Check(); err != nil {
		return nil, fmt.Errorf("the cluster's keys cannot be used, and a backup of them would be of no use: %w", err)
	}
	if len(stored) > 0 {
		out[filepath.Base(encryption.File(""))] = stored
	}
	if configuration != "" {
		if out[folder.EncryptionFile], err = os.ReadFile(configuration); err != nil {
			return nil, fmt.Errorf("read how the cluster encrypts what is stored: %w", err)
		}
	}
	return out, nil
}

// backups makes backups of the server that runs.
type backups struct{ *Server }

// Take implements apiserver.Backups.
func (b backups) Take(ctx context.Context) (apiserver.Backup, error) { return b.take(ctx) }

// Disputed implements schedule.Source.
func (b backups) Disputed() error { return b.etcd.Disputed() }

// take makes a snapshot, one at a time.
func (s *Server) take(ctx context.Context) (*snapshot, error) {
	select {
	case s.copying <- struct{}{}:
		defer func() { <-s.copying }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another backup that is being made: %w", ctx.Err())
	}
	if err := folder.HaveRoom(s.options.DataDir, s.etcd.SnapshotSize()); err != nil {
		return nil, err
	}
	taken, err := takeSnapshot(ctx, s.options.DataDir, s.settings.Etcd.EncryptionProviderConfigFilepath, s.etcd.Snapshot)
	if err != nil {
		return nil, err
	}
	m := &taken.manifest
	m.Server, m.Servers = s.name(), len(s.etcd.Members())
	m.Start = backup.Start{
		Listen: s.options.Listen, AdvertiseAddress: s.options.AdvertiseAddress, PeerAddress: s.options.PeerAddress, ServerName: s.options.Name,
		ServiceCIDR: s.options.ServiceCIDR, ClusterCIDR: s.pods.Cluster.String(), NodeMaskSize: s.pods.NodeBits,
		EtcdPrefix: s.settings.Etcd.StorageConfig.Prefix,
	}
	return taken, nil
}

// TakeStopped makes a backup of the data folder of a server that does not run, whose
// database stays as it is. With ErrRunning one does.
func TakeStopped(ctx context.Context, dataDir string) (apiserver.Backup, error) {
	m, err := readMembership(dataDir)
	if err != nil {
		return nil, err
	}
	if !folder.HasDatabase(dataDir) {
		return nil, fmt.Errorf("%s holds no data of a server; name the right folder with --data-dir", dataDir)
	}
	if err := datadir.CheckWritten(dataDir, datadir.ThisProgram()); err != nil {
		return nil, err
	}
	release, _, err := folder.Lock(dataDir)
	if errors.Is(err, folder.ErrInUse) {
		return nil, ErrRunning
	}
	if err != nil {
		return nil, err
	}
	defer release()
	size, err := folder.Size(filepath.Join(dataDir, "etcd"))
	if err == nil {
		err = folder.HaveRoom(dataDir, 2*size)
	}
	if err != nil {
		return nil, err
	}
	if err := clearScratch(dataDir); err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp(dataDir, scratchPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a folder for the backup: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	configuration := filepath.Join(dataDir, folder.EncryptionFile)
	if !folder.Exists(configuration) {
		configuration = ""
	}
	taken, err := takeSnapshot(ctx, dataDir, configuration, func(ctx context.Context, w io.Writer) error {
		return etcd.Copy(ctx, filepath.Join(dataDir, "etcd"), scratch, w)
	})
	if err != nil {
		return nil, err
	}
	taken.manifest.Server, taken.manifest.Servers = serverName(""), 1
	if m != nil {
		taken.manifest.Server, taken.manifest.Servers = m.Name, max(1, len(m.Known))
		taken.manifest.Start = backup.Start{
			ServerName: m.Name, ServiceCIDR: m.ServiceCIDR, ClusterCIDR: m.ClusterCIDR, NodeMaskSize: m.NodeMaskSize, EtcdPrefix: m.Prefix,
		}
	}
	return taken, nil
}

// scratchPrefix begins the names of what is only there while a backup is made.
const scratchPrefix = ".backup-"

// clearScratch removes what a process left that was killed while it made a backup. The
// data folder must be locked.
func clearScratch(dataDir string) error {
	left, err := filepath.Glob(filepath.Join(dataDir, scratchPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove what an unfinished backup has left: %w", err)
		}
	}
	return nil
}
