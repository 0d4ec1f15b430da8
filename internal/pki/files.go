package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	pemCertificate = "CERTIFICATE"
	pemPrivateKey  = "PRIVATE KEY"
	fileMode       = 0o600
	directoryMode  = 0o700
)

// FileError reports a file of the directory that cannot be used, and what its
// owner can do about it.
type FileError struct {
	Path   string // the file at fault
	Err    error  // what is wrong with it
	Remedy string // what to do, a full clause
}

// Error implements error.
func (e *FileError) Error() string { return fmt.Sprintf("%s: %v; %s", e.Path, e.Err, e.Remedy) }

// Unwrap gives the underlying error.
func (e *FileError) Unwrap() error { return e.Err }

// readKey reads an ECDSA private key. The result is nil when there is no file.
func readKey(path string) (*ecdsa.PrivateKey, error) {
	block, err := readBlock(path, pemPrivateKey)
	if block == nil || err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(block)
	if err != nil {
		return nil, fmt.Errorf("parse private key: %w", err)
	}
	ecKey, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("private key is %T, expected ECDSA", key)
	}
	return ecKey, nil
}

// readCertificate reads the first certificate of a file. The result is nil when
// there is no file.
func readCertificate(path string) (*x509.Certificate, error) {
	block, err := readBlock(path, pemCertificate)
	if block == nil || err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(block)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	return cert, nil
}

func readBlock(path, kind string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err // the path is told once, by FileError
		}
		return nil, fmt.Errorf("read: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("holds no PEM block")
	}
	if block.Type != kind {
		return nil, fmt.Errorf("holds a PEM block %q, expected %q", block.Type, kind)
	}
	return block.Bytes, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate ECDSA key: %w", err)
	}
	return key, nil
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivateKey, Bytes: der}), nil
}

func certificatePEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: cert.Raw})
}

// writeFile puts data at path in one step: a reader, and a machine that loses
// power, sees the old content or the new, never a part.
func writeFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	temp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Chmod(fileMode), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	if err = os.Rename(temp.Name(), path); err != nil {
		return err
	}
	return syncDirectory(dir)
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
