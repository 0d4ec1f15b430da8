package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

// step is one change of one file, which happens or does not. A list of steps can be
// cut off after any of them: settle then makes the directory whole again.
type step struct {
	remove, rename, write string // the file; one of the three is set
	to                    string // with rename
	data                  []byte // with write
}

func (s step) apply(dir string) error {
	switch {
	case s.write != "":
		return keyfile.Write(filepath.Join(dir, s.write), s.data)
	case s.rename != "":
		if err := os.Rename(filepath.Join(dir, s.rename), filepath.Join(dir, s.to)); err != nil {
			return fmt.Errorf("put a new file in place: %w", err)
		}
	default:
		if err := os.Remove(filepath.Join(dir, s.remove)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an old file: %w", err)
		}
	}
	return keyfile.SyncFolder(dir)
}

// applyAll does nothing if a file is a link. A new key in its place would lie beside the
// data, which the link is there to prevent; and where it leads, files that belong together
// cannot be replaced as one.
func applyAll(dir string, steps []step) error {
	for _, s := range steps {
		for _, name := range []string{s.write, s.to, s.remove} {
			path := filepath.Join(dir, name)
			if to, err := os.Readlink(path); name != "" && err == nil {
				return &keyfile.Error{Path: path, Err: fmt.Errorf("is a link to %s, and would have to be replaced", to),
					Remedy: "put the file itself in its place, or let the whole folder be a link"}
			}
		}
	}
	for _, s := range steps {
		if err := s.apply(dir); err != nil {
			return err
		}
	}
	return nil
}

// replacePair puts a new key and certificate in the place of the old ones. The key
// is the moment: before its renaming the old pair is there, and after it the new
// certificate is found beside its key.
func replacePair(name string, cert, key []byte) []step {
	return []step{
		{write: name + "-next.crt", data: cert},
		{write: name + "-next.key", data: key},
		{rename: name + "-next.key", to: name + ".key"},
		{rename: name + "-next.crt", to: name + ".crt"},
	}
}

// settle completes or drops what an interrupted change has left. The directory must
// be locked.
func settle(dir string) error {
	for _, name := range append([]string{ClusterAuthority, NodeAuthority, FrontAuthority}, leaves...) {
		steps, err := settlePair(dir, name)
		if err == nil {
			err = applyAll(dir, steps)
		}
		if err != nil {
			return err
		}
	}
	if exists(dir, serviceAccountNext) {
		return step{remove: serviceAccountNext}.apply(dir)
	}
	return nil
}

func settlePair(dir, name string) ([]step, error) {
	nextCert, nextKey := name+"-next.crt", name+"-next.key"
	drop := []step{{remove: nextCert}, {remove: nextKey}}
	if !exists(dir, nextCert) || exists(dir, nextKey) {
		if !exists(dir, nextCert) && !exists(dir, nextKey) {
			return nil, nil
		}
		return drop, nil
	}
	cert, err := keyfile.ReadCertificate(filepath.Join(dir, nextCert))
	if err != nil {
		return nil, keyfile.Because(
			filepath.Join(dir, nextCert), err, "remove it, if "+name+".crt and "+name+".key are in order",
		)
	}
	key, err := keyfile.ReadKey(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, keyfile.Because(filepath.Join(dir, name+".key"), err, "restore it from a backup")
	}
	if cert != nil && key != nil && key.PublicKey.Equal(cert.PublicKey) {
		return []step{{rename: nextCert, to: name + ".crt"}}, nil
	}
	return drop, nil
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}
