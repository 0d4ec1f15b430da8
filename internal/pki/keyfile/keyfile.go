// Package keyfile reads and writes files that each hold a key or certificates. A file that is there and cannot be
// understood is an error that says what to do; one appears whole or not at all.
package keyfile

import (
	"bytes"
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
)

// Mode is that of the files, FolderMode that of folders of them.
const (
	Mode       = 0o600
	FolderMode = 0o700
)

// Error reports a file of the directory that cannot be used, and what its
// owner can do about it.
type Error struct {
	Path   string // the file at fault
	Err    error  // what is wrong with it
	Remedy string // what to do, a full clause
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s: %v; %s", e.Path, e.Err, e.Remedy) }

// Unwrap gives the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// Because names the file and the remedy of an error, if there is one and it does
// not do so itself.
func Because(path string, err error, remedy string) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &Error{Path: path, Err: err, Remedy: remedy}
}

// ReadKey reads an ECDSA private key. The result is nil when there is no file. One
// that others can read is no secret, and is refused.
func ReadKey(path string) (*ecdsa.PrivateKey, error) {
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, &Error{
			Path:   path,
			Err:    fmt.Errorf("other users of this machine can read this key (its mode is %04o)", info.Mode().Perm()),
			Remedy: "run chmod 600 " + path + ", and replace the key if somebody may have read it",
		}
	}
	data, err := readFile(path)
	if data == nil || err != nil {
		return nil, err
	}
	return ParseKey(data)
}

// ParseKey returns the ECDSA private key in the data of a file.
func ParseKey(data []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("holds no PEM block")
	}
	if block.Type != pemPrivateKey {
		return nil, fmt.Errorf("holds a PEM block %q, expected %q", block.Type, pemPrivateKey)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse private key: %w", err)
	}
	ecKey, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("private key is %T, expected ECDSA", key)
	}
	return ecKey, nil
}

// readFile returns nil when there is no file. A link to nothing is no such case: what is
// made again because a disk is missing would take the place of what is on it.
func readFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if to, linked := os.Readlink(path); linked == nil {
			return nil, &Error{Path: path, Err: fmt.Errorf("is a link to %s, where there is nothing", to),
				Remedy: "mount what holds it, or remove the link if a new one is to be made"}
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", Pathless(err))
	}
	return data, nil
}

// ReadCertificate reads the first certificate of a file. The result is nil when
// there is no file.
func ReadCertificate(path string) (*x509.Certificate, error) {
	certs, err := ReadCertificates(path)
	if err != nil || len(certs) == 0 {
		return nil, err
	}
	return certs[0], nil
}

// ReadCertificates reads all certificates of a file; none when there is no file.
func ReadCertificates(path string) ([]*x509.Certificate, error) {
	data, err := readFile(path)
	if data == nil || err != nil {
		return nil, err
	}
	return ParseCertificates(data)
}

// ParseCertificates returns all certificates in the data of a file; none is an error.
func ParseCertificates(data []byte) (out []*x509.Certificate, err error) {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != pemCertificate {
			return nil, fmt.Errorf("holds a PEM block %q, expected %q", block.Type, pemCertificate)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate: %w", err)
		}
		out, data = append(out, cert), rest
	}
	if len(out) == 0 {
		return nil, errors.New("holds no PEM block")
	}
	return out, CutOff(data)
}

// CutOff says whether a block begins in what is left when no whole one is.
func CutOff(rest []byte) error {
	if bytes.Contains(rest, []byte("-----BEGIN")) {
		return errors.New("holds a PEM block that is cut off")
	}
	return nil
}

// Pathless drops the path of a file error: it is told once, by Error.
func Pathless(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// LoadOrCreateKey reads a key, and makes it if there is no file.
func LoadOrCreateKey(path, remedy string) (*ecdsa.PrivateKey, error) {
	key, err := ReadKey(path)
	if err != nil {
		return nil, Because(path, err, remedy)
	}
	if key != nil {
		return key, nil
	}
	if key, err = NewKey(); err != nil {
		return nil, err
	}
	data, err := KeyPEM(key)
	if err != nil {
		return nil, err
	}
	return key, Write(path, data)
}

// NewKey makes an ECDSA key.
func NewKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate ECDSA key: %w", err)
	}
	return key, nil
}

// KeyPEM is what a file holds that has the key.
func KeyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivateKey, Bytes: der}), nil
}

// CertificatePEM is what a file holds that has the certificate.
func CertificatePEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: cert.Raw})
}

// Write puts data at path in one step: a reader, and a machine that loses
// power, sees the old content or the new, never a part.
func Write(path string, data []byte) (err error) {
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
	err = errors.Join(err, temp.Chmod(Mode), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	if err = os.Rename(temp.Name(), path); err != nil {
		return err
	}
	return SyncFolder(dir)
}

// SyncFolder has what was renamed in a folder be there after a loss of power.
func SyncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
