package pki

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

// fileError names the file and the remedy of an error, if there is one and it does
// not do so itself.
func fileError(path string, err error, remedy string) error {
	var known *FileError
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &FileError{Path: path, Err: err, Remedy: remedy}
}

// readKey reads an ECDSA private key. The result is nil when there is no file. One
// that others can read is no secret, and is refused.
func readKey(path string) (*ecdsa.PrivateKey, error) {
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, &FileError{Path: path, Err: fmt.Errorf("other users of this machine can read this key (its mode is %04o)", info.Mode().Perm()),
			Remedy: "run chmod 600 " + path + ", and replace the key if somebody may have read it"}
	}
	data, err := readFile(path)
	if data == nil || err != nil {
		return nil, err
	}
	return parseKey(data)
}

func parseKey(data []byte) (*ecdsa.PrivateKey, error) {
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
// made anew because a disk is missing would take the place of what is on it.
func readFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if to, linked := os.Readlink(path); linked == nil {
			return nil, &FileError{Path: path, Err: fmt.Errorf("is a link to %s, where there is nothing", to),
				Remedy: "mount what holds it, or remove the link if a new one is to be made"}
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", pathless(err))
	}
	return data, nil
}

// readCertificate reads the first certificate of a file. The result is nil when
// there is no file.
func readCertificate(path string) (*x509.Certificate, error) {
	certs, err := readCertificates(path)
	if err != nil || len(certs) == 0 {
		return nil, err
	}
	return certs[0], nil
}

// readCertificates reads all certificates of a file; none when there is no file.
func readCertificates(path string) ([]*x509.Certificate, error) {
	data, err := readFile(path)
	if data == nil || err != nil {
		return nil, err
	}
	return parseCertificates(data)
}

func parseCertificates(data []byte) (out []*x509.Certificate, err error) {
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
	return out, cutOff(data)
}

// cutOff says whether a block begins in what is left when no whole one is.
func cutOff(rest []byte) error {
	if bytes.Contains(rest, []byte("-----BEGIN")) {
		return errors.New("holds a PEM block that is cut off")
	}
	return nil
}

// pathless drops the path of a file error: it is told once, by FileError.
func pathless(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

func loadOrCreateKey(path, remedy string) (*ecdsa.PrivateKey, error) {
	key, err := readKey(path)
	if err != nil {
		return nil, fileError(path, err, remedy)
	}
	if key != nil {
		return key, nil
	}
	if key, err = newKey(); err != nil {
		return nil, err
	}
	data, err := keyPEM(key)
	if err != nil {
		return nil, err
	}
	return key, writeFile(path, data)
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
