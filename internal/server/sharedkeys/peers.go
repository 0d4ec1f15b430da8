package sharedkeys

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/storage/etcd"
)

// Peers is the authority of the databases among each other, of a data folder whose server the others reach at host. Its
// key is given to members only who answer at their address: a server that was removed has a certificate of the
// authority that is being replaced.
func Peers(dataDir, host string) Files {
	return Files{
		Which: etcd.PeerKeys, dataDir: dataDir, Export: func() ([]byte, error) { return ExportPeers(dataDir) },
		hash: func(content []byte) string {
			sum := sha256.Sum256(content) // names are in order
			return hex.EncodeToString(sum[:])
		},
		check: func(content []byte) error {
			files, err := readPeers(content)
			if err == nil {
				err = pki.CheckPeers(files)
			}
			return err
		},
		adopt: func(content []byte) error {
			files, err := readPeers(content)
			if err == nil {
				err = pki.AdoptPeers(folder.Peers(dataDir), host, files, clock.RealClock{})
			}
			return err
		},
		replacedHere: "The authority of the servers' databases was replaced on this server; the others take it",
		took:         "Took the authority of the servers' databases that was replaced on another server",
		byHand: fmt.Sprintf("the authority of the servers' databases was replaced on two servers at once: "+
			"copy peers/%s* to %s from the server whose authority is to count", pki.PeerAuthority, dataDir),
	}
}

func readPeers(content []byte) (files map[string][]byte, err error) {
	err = json.Unmarshal(content, &files)
	if err != nil {
		return nil, fmt.Errorf("read the authority of the servers' databases: %w", err)
	}
	return files, nil
}

// ExportPeers returns the authority of a data folder as it is sent, with the errors of Export.
func ExportPeers(dataDir string) ([]byte, error) {
	files, err := pki.ExportPeers(folder.Peers(dataDir))
	if err != nil {
		return nil, err
	}
	if !pki.PeersWhole(files) {
		return nil, ErrHalf
	}
	err = pki.CheckPeers(files)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return json.Marshal(files)
}
