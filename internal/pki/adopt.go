package pki

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

// ClusterWhole reports whether files hold all that a cluster needs: while somebody replaces
// some by hand, they do not.
func ClusterWhole(files map[string][]byte) bool {
	for _, name := range []string{ClusterAuthority, NodeAuthority, FrontAuthority} {
		if len(files[name+".crt"]) == 0 || len(files[name+".key"]) == 0 {
			return false
		}
	}
	return len(files[serviceAccountKey]) > 0
}

// MissingOfCluster are the files that every server of a cluster has, and this directory lacks.
// Where there are other servers nobody may make them again: those would take them over.
func MissingOfCluster(dir string) (missing []string, err error) {
	for _, name := range sharedFiles {
		if name == serviceAccountPrevious || strings.HasSuffix(name, "-previous.crt") {
			continue // there after a replacement only
		}
		switch _, err := os.Stat(filepath.Join(dir, name)); {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, name)
		case err != nil:
			return nil, fmt.Errorf("look for the keys that all servers share: %w", err)
		}
	}
	return missing, nil
}

// CheckCluster says which of the files that every server of a cluster has cannot be used. A
// server does not start with such a file, so it must take the place of no other's.
func CheckCluster(files map[string][]byte) error {
	for _, name := range []string{ClusterAuthority, NodeAuthority, FrontAuthority} {
		cert, key := files[name+".crt"], files[name+".key"]
		if len(cert)+len(key) == 0 && name != ClusterAuthority {
			continue // of before there was one; it is made
		}
		if err := checkPair(name, cert, key); err != nil {
			return err
		}
		if previous, there := files[previousFile("", name)]; there {
			if _, err := keyfile.ParseCertificates(previous); err != nil {
				return fmt.Errorf("%s: %w", previousFile("", name), err)
			}
		}
	}
	if _, err := keyfile.ParseKey(files[serviceAccountKey]); err != nil {
		return fmt.Errorf("%s: %w", serviceAccountKey, err)
	}
	if previous, there := files[serviceAccountPrevious]; there {
		if _, err := parsePreviousKeys(previous); err != nil {
			return fmt.Errorf("%s: %w", serviceAccountPrevious, err)
		}
	}
	return nil
}

// checkPair says what is wrong with an authority, whatever the time is.
func checkPair(name string, certFile, keyFile []byte) error {
	certs, err := keyfile.ParseCertificates(certFile)
	if err != nil {
		return fmt.Errorf("%s.crt: %w", name, err)
	}
	key, err := keyfile.ParseKey(keyFile)
	if err != nil {
		return fmt.Errorf("%s.key: %w", name, err)
	}
	if err := checkAuthority(certs[0], key, certs[0].NotBefore); err != nil {
		return fmt.Errorf("%s.crt: %w", name, err)
	}
	return nil
}

// goodBy refuses an authority that is not good yet: with it this server would not start. A clock
// is wrong, here or there.
func goodBy(name string, certFile []byte, now time.Time) error {
	certs, err := keyfile.ParseCertificates(certFile)
	if err != nil {
		return fmt.Errorf("%s.crt: %w", name, err)
	}
	if from := certs[0].NotBefore; now.Before(from) {
		return fmt.Errorf(
			"%s.crt: it is good from %s on, and this machine's clock says %s: set the clocks",
			name, from.Format(time.RFC3339), now.Format(time.RFC3339),
		)
	}
	return nil
}

// AdoptCluster puts the files that every server of a cluster has in the place of those of a
// server that may run. Cut off at any moment, the directory is whole, and the next try goes on.
func AdoptCluster(dir string, files map[string][]byte, now time.Time) error {
	if !ClusterWhole(files) {
		return fmt.Errorf("replace the keys in %s: those of the other server are not all there", dir)
	}
	if err := CheckCluster(files); err != nil {
		return fmt.Errorf("replace the keys in %s: those of the other server cannot be used: %w", dir, err)
	}
	for _, name := range []string{ClusterAuthority, NodeAuthority, FrontAuthority} {
		if err := goodBy(name, files[name+".crt"], now); err != nil {
			return fmt.Errorf("take the keys of another server: %w", err)
		}
	}
	unlock, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := settle(dir); err != nil {
		return err
	}
	return applyAll(dir, adoption(dir, files))
}

// adoption is what has to be done. What is trusted comes before what signs, and goes after it.
func adoption(dir string, files map[string][]byte) []step {
	var before, after []step
	keep := func(name string) {
		if data, ok := files[name]; ok {
			before = append(before, step{write: name, data: data})
		} else {
			after = append(after, step{remove: name})
		}
	}
	keep(previousFile("", ClusterAuthority))
	keep(previousFile("", NodeAuthority))
	keep(serviceAccountPrevious)
	for _, name := range []string{ClusterAuthority, NodeAuthority, FrontAuthority} {
		cert, key := files[name+".crt"], files[name+".key"]
		if same(dir, name+".crt", cert) && same(dir, name+".key", key) {
			continue
		}
		before = append(before, replacePair(name, cert, key)...)
		if name == FrontAuthority {
			after = append(after, step{remove: frontClientName + ".crt"}, step{remove: frontClientName + ".key"})
		}
	}
	before = append(before, step{write: serviceAccountKey, data: files[serviceAccountKey]})
	return append(before, after...)
}

func same(dir, name string, data []byte) bool {
	now, err := os.ReadFile(filepath.Join(dir, name))
	return err == nil && bytes.Equal(now, data)
}
