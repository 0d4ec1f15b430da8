package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

// Item is a key or certificate of the directory, for people to look at.
type Item struct {
	File, Subject string
	// Hash is the certificate's, or empty.
	Hash string
	// Until is its end; zero for a key without one.
	Until time.Time
	// State says what it is used for, or what is wrong with it.
	State string
}

// Inspect reads what a control plane has. It changes nothing, and shows what an
// interrupted change has left.
func Inspect(dir string) ([]Item, error) {
	unlock, err := lockDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if !exists(dir, ClusterAuthority+".crt") {
		return nil, fmt.Errorf(
			"%s holds no keys of a control plane: start its server once, or name the right --data-dir", dir,
		)
	}
	var out []Item
	for _, name := range []string{ClusterAuthority, NodeAuthority} {
		out = append(out, inspectAuthority(dir, name)...)
	}
	cluster, _ := keyfile.ReadCertificate(filepath.Join(dir, ClusterAuthority+".crt"))
	for _, name := range leaves {
		out = append(out, inspectLeaf(dir, name, cluster))
	}
	out = append(out, inspectAuthority(dir, FrontAuthority)...)
	front, _ := keyfile.ReadCertificate(filepath.Join(dir, FrontAuthority+".crt"))
	out = append(out, inspectLeaf(dir, frontClientName, front))
	out = append(out, inspectAccounts(dir)...)
	for _, name := range append([]string{ClusterAuthority, NodeAuthority}, leaves...) {
		for _, ending := range []string{"-next.crt", "-next.key"} {
			if exists(dir, name+ending) {
				out = append(out, leftOver(name+ending))
			}
		}
	}
	if exists(dir, serviceAccountNext) {
		out = append(out, leftOver(serviceAccountNext))
	}
	return out, nil
}

func leftOver(file string) Item {
	return Item{
		File:  file,
		State: "left by a change that was interrupted; the server, or the next change, completes or drops it",
	}
}

func broken(file string, err error) Item {
	var known *keyfile.Error
	if errors.As(err, &known) {
		err = known.Err
	}
	return Item{File: file, State: "cannot be used: " + err.Error()}
}

func itemOf(file string, cert *x509.Certificate, state string) Item {
	return Item{File: file, Subject: cert.Subject.CommonName, Hash: HashOf(cert), Until: cert.NotAfter, State: state}
}

func inspectAuthority(dir, name string) (out []Item) {
	file := name + ".crt"
	cert, err := keyfile.ReadCertificate(filepath.Join(dir, file))
	if err != nil {
		return []Item{broken(file, err)}
	}
	if cert == nil {
		return []Item{{File: file, State: "is made when the server starts"}}
	}
	key, err := keyfile.ReadKey(filepath.Join(dir, name+".key"))
	state := "signs"
	switch {
	case err != nil:
		return []Item{broken(name+".key", err)}
	case key == nil || !key.PublicKey.Equal(cert.PublicKey):
		state = "does not belong to the key beside it"
	}
	out = append(out, itemOf(file, cert, state))
	previous, err := keyfile.ReadCertificates(previousFile(dir, name))
	if err != nil {
		return append(out, broken(previousFile("", name), err))
	}
	for _, other := range previous {
		switch {
		case other.Equal(cert):
		case other.CheckSignatureFrom(other) == nil:
			out = append(out, itemOf(previousFile("", name), other, "signs no more; trusted until --finish"))
		case key != nil && key.PublicKey.Equal(other.PublicKey):
			out = append(out, itemOf(previousFile("", name), other, "lets those who trust only the old one trust the new one"))
		}
	}
	return out
}

func inspectLeaf(dir, name string, cluster *x509.Certificate) Item {
	file := name + ".crt"
	p, err := readLeaf(dir, name)
	switch {
	case err != nil:
		return broken(file, err)
	case p == nil:
		return Item{File: file, State: "is made when the server starts"}
	case cluster == nil || p.cert.CheckSignatureFrom(cluster) != nil:
		return itemOf(file, p.cert, "signed by an older authority; the server renews it")
	}
	return itemOf(file, p.cert, "in use")
}

func inspectAccounts(dir string) (out []Item) {
	key, err := keyfile.ReadKey(filepath.Join(dir, serviceAccountKey))
	switch {
	case err != nil:
		return []Item{broken(serviceAccountKey, err)}
	case key == nil:
		return []Item{{File: serviceAccountKey, State: "is made when the server starts"}}
	}
	out = append(out, Item{File: serviceAccountKey, State: "signs"})
	previous, err := readPreviousKeys(dir)
	if err != nil {
		return append(out, broken(serviceAccountPrevious, err))
	}
	for _, old := range previous {
		if !old.public.Equal(&key.PublicKey) {
			out = append(out, Item{File: serviceAccountPrevious,
				State: "signs no more since " + old.replaced.UTC().Format(time.RFC3339) +
					"; its tokens are accepted until --finish"})
		}
	}
	return out
}

// Replaced says since when the key of service account tokens is a new one, while
// the old one is still accepted.
func Replaced(dir string) (since time.Time, ok bool, err error) {
	keys, err := readPreviousKeys(dir)
	if err != nil || len(keys) == 0 {
		return time.Time{}, false, err
	}
	return keys[0].replaced, true, nil
}

// AuthoritySince says since when the authority that signs does so, while one before
// it is still trusted; the zero time when none is.
func AuthoritySince(dir, which string) (time.Time, error) {
	if !exists(dir, previousFile("", which)) {
		return time.Time{}, nil
	}
	cert, err := keyfile.ReadCertificate(filepath.Join(dir, which+".crt"))
	if err != nil || cert == nil {
		return time.Time{}, keyfile.Because(filepath.Join(dir, which+".crt"), err, "restore it from a backup")
	}
	return cert.NotBefore.Add(Backdate), nil
}

// AuthorityHash is the hash of the authority that signs now.
func AuthorityHash(dir, which string) (string, error) {
	cert, err := keyfile.ReadCertificate(filepath.Join(dir, which+".crt"))
	if err == nil && cert == nil {
		err = errors.New("no such file")
	}
	if err != nil {
		return "", keyfile.Because(
			filepath.Join(dir, which+".crt"), err, "start the server once with this data directory, or name the right one",
		)
	}
	return HashOf(cert), nil
}

// Names are the names of the server's own certificates, for help texts.
func Names() string { return strings.Join(leaves, ", ") }
