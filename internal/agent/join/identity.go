package join

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/everynode/everynode/internal/node/identity"
)

// identify signs a certificate request with the key that the node's name belongs
// to. The key is made once, and never leaves the node.
func (id *Identity) identify(request []byte) (map[string]string, error) {
	key, err := id.identityKey()
	if err != nil {
		return nil, err
	}
	return identity.Sign(key, id.cfg.NodeName, request)
}

func (id *Identity) identityKey() (*ecdsa.PrivateKey, error) {
	path := id.store.path(identityFile)
	if err := id.store.checkSecret(identityFile); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if had := id.store.kept.get(identityFile); had != nil {
		data, err = had, nil // Somebody may have removed it since, and the name belongs to this one.
	}
	if errors.Is(err, os.ErrNotExist) {
		return id.newIdentityKey()
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf(
			"%s holds no key: restore it, or remove it and delete the Node %s before this machine joins again",
			path, id.cfg.NodeName,
		)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok {
		return nil, fmt.Errorf(
			"%s holds no key of a node: restore it, or remove it and delete the Node %s before this machine joins again",
			path, id.cfg.NodeName,
		)
	}
	return key, nil
}

func (id *Identity) newIdentityKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the node's key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the node's key: %w", err)
	}
	return key, id.store.write(identityFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
