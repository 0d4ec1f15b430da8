// Package sharedkeys is what several servers have alike: the authorities and keys of the cluster, and the authority by
// which their databases know each other. What is replaced on one server, the others take from it.
package sharedkeys

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/storage/etcd"
)

// ErrHalf says that somebody is just replacing files by hand.
var ErrHalf = errors.New("not all keys are there")

// ErrDamaged says that this server would not start with its keys. The others have good ones.
var ErrDamaged = errors.New("keys of this server cannot be used, and the others do not take them; " +
	"copy the file from another server, or restore it from a backup")

// Set is what each server has alike for its clients: authorities, the key of service account tokens, and the keys of
// stored Secrets.
type Set struct {
	Cluster map[string][]byte
	Stored  []byte `json:",omitempty"`
}

// Check says what is wrong with the keys themselves.
func (s Set) Check() error {
	err := pki.CheckCluster(s.Cluster)
	if err != nil || len(s.Stored) == 0 {
		return err
	}
	_, err = encryption.Decode(s.Stored)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(encryption.File("")), err)
	}
	return nil
}

// Hash is what servers compare. It is over the files that servers of every version know, and
// over their content only: one of the next version, which may have more, tells the same. It
// must stay as it is; what it leaves out needs an agreement of its own.
func (s Set) Hash() string {
	compared := Set{Cluster: map[string][]byte{}, Stored: s.Stored}
	for _, name := range pki.AgreedFiles {
		if content, ok := s.Cluster[name]; ok {
			compared.Cluster[name] = content
		}
	}
	content, _ := json.Marshal(compared) // it cannot fail: bytes by names
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Export returns the keys of a data folder as they are sent. It fails with ErrHalf while somebody replaces files by
// hand, and with ErrDamaged if no server would start with them.
func Export(dataDir string) ([]byte, error) {
	var keys Set
	var err error
	keys.Cluster, err = pki.ExportCluster(filepath.Join(dataDir, "pki"))
	if err != nil {
		return nil, err
	}
	if !pki.ClusterWhole(keys.Cluster) {
		return nil, ErrHalf
	}
	keys.Stored, err = encryption.Read(encryption.File(dataDir))
	if err != nil {
		return nil, err
	}
	err = keys.Check()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return json.Marshal(keys)
}

// Cluster are the keys of a data folder. reload has the server go by them once they are taken from another.
func Cluster(dataDir string, reload func() error) Files {
	return Files{
		Which: etcd.ClusterKeys, dataDir: dataDir, Export: func() ([]byte, error) { return Export(dataDir) },
		hash: hashSent,
		check: func(content []byte) error {
			keys, err := read(content)
			if err == nil {
				err = keys.Check()
			}
			return err
		},
		adopt: func(content []byte) error {
			keys, err := read(content)
			if err == nil && len(keys.Stored) > 0 {
				err = encryption.WriteEncoded(encryption.File(dataDir), keys.Stored)
			}
			if err == nil {
				err = pki.AdoptCluster(filepath.Join(dataDir, "pki"), keys.Cluster, time.Now())
			}
			if err == nil {
				err = reload()
			}
			return err
		},
		replacedHere: "Keys were replaced on this server; the others take them",
		took:         "Took the keys that were replaced on another server",
		byHand: fmt.Sprintf("keys were replaced on two servers at once: copy pki/ca*, pki/node-ca*, "+
			"pki/service-account*, pki/front-proxy-ca* and encryption.yaml to %s from the server whose keys are to count",
			dataDir),
	}
}

func read(content []byte) (keys Set, err error) {
	err = json.Unmarshal(content, &keys)
	if err != nil {
		return keys, fmt.Errorf("read the keys of another server: %w", err)
	}
	return keys, nil
}

// hashSent is the hash of keys as they are sent; that of none if they cannot be read.
func hashSent(content []byte) string {
	keys, err := read(content)
	if err != nil {
		return Set{}.Hash()
	}
	return keys.Hash()
}
