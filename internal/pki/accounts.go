package pki

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

const (
	serviceAccountKey  = "service-account.key"
	serviceAccountNext = "service-account-next.key"
	// serviceAccountPrevious holds the public keys whose tokens are still accepted.
	serviceAccountPrevious = "service-account-previous.pub"

	pemPublicKey = "PUBLIC KEY"
	// replacedHeader says in a PEM block since when a key signs no more.
	replacedHeader = "Replaced"
)

const accountRemedy = "restore it from a backup, or remove it and restart: every service account token is then void"

// accountKeys sign and verify service account tokens.
type accountKeys struct {
	signing  *ecdsa.PrivateKey
	previous []previousKey
}

// previousKey is a key that signs no more.
type previousKey struct {
	public   *ecdsa.PublicKey
	replaced time.Time
}

func loadOrCreateAccounts(dir string) (*accountKeys, error) {
	key, err := keyfile.LoadOrCreateKey(filepath.Join(dir, serviceAccountKey), accountRemedy)
	if err != nil {
		return nil, err
	}
	previous, err := readPreviousKeys(dir)
	if err != nil {
		return nil, err
	}
	keys := &accountKeys{signing: key}
	for _, p := range previous {
		if !p.public.Equal(&key.PublicKey) {
			keys.previous = append(keys.previous, p)
		}
	}
	if len(previous) > 0 && len(keys.previous) == 0 {
		// The rotation that wrote it was interrupted before it began.
		return keys, step{remove: serviceAccountPrevious}.apply(dir)
	}
	return keys, nil
}

func readPreviousKeys(dir string) ([]previousKey, error) {
	path := filepath.Join(dir, serviceAccountPrevious)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	remedy := "restore it from a backup, or remove it: tokens that the keys in it signed are then void"
	if err != nil {
		return nil, keyfile.Because(path, keyfile.Pathless(err), remedy)
	}
	keys, err := parsePreviousKeys(data)
	return keys, keyfile.Because(path, err, remedy)
}

func parsePreviousKeys(data []byte) (out []previousKey, err error) {
	for len(data) > 0 {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		data = rest
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse public key: %w", err)
		}
		public, ok := key.(*ecdsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("public key is %T, expected ECDSA", key)
		}
		replaced, err := time.Parse(time.RFC3339, block.Headers[replacedHeader])
		if err != nil {
			return nil, fmt.Errorf("read when a key was replaced: %w", err)
		}
		out = append(out, previousKey{public: public, replaced: replaced})
	}
	if len(out) == 0 {
		return nil, errors.New("holds no PEM block")
	}
	return out, keyfile.CutOff(data)
}

func previousKeysPEM(keys []previousKey) ([]byte, error) {
	var out []byte
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key.public)
		if err != nil {
			return nil, fmt.Errorf("encode public key: %w", err)
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{
			Type: pemPublicKey, Headers: map[string]string{replacedHeader: key.replaced.UTC().Format(time.RFC3339)}, Bytes: der,
		})...)
	}
	return out, nil
}
