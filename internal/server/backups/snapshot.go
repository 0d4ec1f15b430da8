// Package backups makes a backup of a server's data folder, and a data folder of a backup.
package backups

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

	"github.com/everynode/everynode/internal/files/datadir"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/sharedkeys"
	"github.com/everynode/everynode/internal/storage/backup"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/storage/etcd/offline"
	"github.com/everynode/everynode/internal/version"
)

const (
	// pkiPart begins the names of the parts of a backup that are keys and certificates.
	pkiPart = "pki/"
	// keysChanged is how often a backup is begun again because keys were replaced meanwhile.
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

// Open reads the beginning of a backup.
func Open(r io.Reader, l backup.Lock) (*backup.Reader, error) {
	b, err := backup.Open(r, l, backupPart)
	if err != nil {
		return nil, err
	}
	if m := b.Manifest; m.Data > datadir.Version {
		return nil, fmt.Errorf("the backup is of everynode %s, whose data has version %d, and this is everynode %s, "+
			"which knows data up to version %d; use that version, or a newer one",
			m.Everynode, m.Data, version.Version, datadir.Version)
	}
	return b, nil
}

// Reseal writes a backup that a server has sent, which is not encrypted, under a lock.
func Reseal(w io.Writer, l backup.Lock, from io.Reader) (backup.Manifest, error) {
	return backup.Reseal(w, l, from, backupPart)
}

// Snapshot is what a backup is made of. It has no name on the disk, and ends with the process.
type Snapshot struct {
	manifest backup.Manifest
	files    map[string][]byte
	database *os.File
}

// Manifest implements apiserver.Backup.
func (s *Snapshot) Manifest() backup.Manifest { return s.manifest }

// Write implements apiserver.Backup.
func (s *Snapshot) Write(w io.Writer, l backup.Lock) error {
	return backup.Write(w, l, s.manifest, func(name string) (io.Reader, error) {
		if name != backup.Database {
			return bytes.NewReader(s.files[name]), nil
		}
		_, err := s.database.Seek(0, io.SeekStart)
		return s.database, err
	})
}

// Origin is the server that a backup is of.
type Origin struct {
	// Server is its name, and Servers how many there were.
	Server  string
	Servers int
	// Start is what it was started with, as far as is known.
	Start backup.Start
}

// From writes down which server the backup is of.
func (s *Snapshot) From(o Origin) {
	s.manifest.Server, s.manifest.Servers, s.manifest.Start = o.Server, o.Servers, o.Start
}

// Close implements apiserver.Backup.
func (s *Snapshot) Close() error { return s.database.Close() }

// Take gathers what belongs into a backup of a data folder. Keys that are
// replaced meanwhile have it begin again: the database must not need a key that is not there.
func Take(ctx context.Context, dataDir, configuration string, copyDatabase func(context.Context, io.Writer) error,
) (*Snapshot, error) {
	for range keysChanged {
		before, err := backupFiles(dataDir, configuration)
		if err != nil {
			return nil, err
		}
		s := &Snapshot{files: before}
		err = s.spool(ctx, dataDir, copyDatabase)
		if err != nil {
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
func (s *Snapshot) spool(ctx context.Context, dir string, copyDatabase func(context.Context, io.Writer) error) error {
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

func (s *Snapshot) describe(dataDir string) (err error) {
	m := &s.manifest
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		m.Files = append(m.Files, backup.Part(name, s.files[name]))
	}
	m.Format, m.Data, m.Created = backup.Format, datadir.Version, time.Now().UTC().Truncate(time.Second)
	m.Everynode, m.Kubernetes = version.Version, version.Kubernetes()
	m.Cluster, err = pki.ReadCAHash(filepath.Join(dataDir, "pki"))
	if err != nil {
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
	err = sharedkeys.Set{Cluster: keys, Stored: stored}.Check()
	if err != nil {
		return nil, fmt.Errorf("the cluster's keys cannot be used, and a backup of them would be of no use: %w", err)
	}
	if len(stored) > 0 {
		out[filepath.Base(encryption.File(""))] = stored
	}
	if configuration != "" {
		out[folder.EncryptionFile], err = os.ReadFile(configuration)
		if err != nil {
			return nil, fmt.Errorf("read how the cluster encrypts what is stored: %w", err)
		}
	}
	return out, nil
}
