package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Format is the version of the file that this program writes, and the newest it reads.
const Format = 1

// Database is the name of the part with the database.
const Database = "etcd.snapshot"

const (
	manifestName = "manifest.json"
	// maxManifest and maxFile bound in bytes what a file can make a reader hold in memory.
	maxManifest, maxFile = 1 << 20, 1 << 20
	// maxDatabase is more than a database can become.
	maxDatabase = 32 << 30
	maxFiles    = 64
)

// Manifest says what is in a backup. It is its first part.
type Manifest struct {
	// Format is that of the file. Data is that of the data folder, which a program must
	// know to restore it.
	Format, Data int
	// Created is when, by the clock of the server.
	Created time.Time
	// Everynode and Kubernetes are the versions of the program that wrote it.
	Everynode, Kubernetes string
	// Cluster is the fingerprint of the cluster's authority.
	Cluster string
	// Server is the name of the server whose database it is; Servers is how many there were.
	Server  string
	Servers int
	// Revision is the last change of the database that is in it.
	Revision int64
	// Start says how the server was told to be.
	Start Start
	// Files are the parts that follow, in their order.
	Files []File
}

// Start is what a server must be told that is not in its data.
type Start struct {
	Listen                               []string `json:",omitempty"`
	AdvertiseAddress, PeerAddress        string   `json:",omitempty"`
	ServerName                           string   `json:",omitempty"`
	ServiceCIDR, ClusterCIDR, EtcdPrefix string   `json:",omitempty"`
	NodeMaskSize                         int      `json:",omitempty"`
}

// File is a part of a backup.
type File struct {
	Name string
	Size int64
	// SHA256 is of its content, in hexadecimal digits.
	SHA256 string
}

// Part describes content that is in memory.
func Part(name string, content []byte) File {
	sum := sha256.Sum256(content)
	return File{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}
}

// DatabaseSize is the size of the part with the database.
func (m Manifest) DatabaseSize() int64 {
	for _, f := range m.Files {
		if f.Name == Database {
			return f.Size
		}
	}
	return 0
}

// errAltered begins every error about a file that is not as it was written.
var errAltered = errors.New("the backup is damaged or was altered")

// decodeManifest reads and checks a manifest. allowed says which parts a backup may have.
func decodeManifest(content []byte, allowed func(name string) bool) (m Manifest, err error) {
	if err := json.Unmarshal(content, &m); err != nil {
		return m, fmt.Errorf("%w: its manifest cannot be read: %w", errAltered, err)
	}
	if m.Format > Format {
		return m, newerError(m.Format, m.Everynode)
	}
	if m.Format < 1 || m.Revision < 1 || m.Data < 0 {
		return m, fmt.Errorf("%w: its manifest says nothing of format, data or revision", errAltered)
	}
	if len(m.Files) == 0 || len(m.Files) > maxFiles {
		return m, fmt.Errorf("%w: its manifest names %d parts", errAltered, len(m.Files))
	}
	var seen []string
	for _, f := range m.Files {
		if slices.Contains(seen, f.Name) {
			return m, fmt.Errorf("%w: it holds the part %q twice", errAltered, f.Name)
		}
		if err := f.check(allowed); err != nil {
			return m, err
		}
		seen = append(seen, f.Name)
	}
	if !slices.Contains(seen, Database) {
		return m, fmt.Errorf("%w: it holds no database", errAltered)
	}
	return m, nil
}

// check says what is wrong with what a manifest says of a part.
func (f File) check(allowed func(name string) bool) error {
	most := int64(maxFile)
	if f.Name == Database {
		most = maxDatabase
	}
	sum, err := hex.DecodeString(f.SHA256)
	switch {
	case f.Name != Database && !allowed(f.Name):
		return fmt.Errorf("%w: it holds a part %q, which no backup has", errAltered, f.Name)
	case f.Size < 0 || f.Size > most:
		return fmt.Errorf("%w: its part %q has %d bytes", errAltered, f.Name, f.Size)
	case err != nil || len(sum) != sha256.Size:
		return fmt.Errorf("%w: its part %q has no checksum", errAltered, f.Name)
	}
	return nil
}

func newerError(format int, by string) error {
	who := "a newer everynode"
	if by != "" {
		who = "everynode " + strings.Map(printable, by)
	}
	return fmt.Errorf(
		"the backup has format %d, of %s, and this program reads up to format %d; use that version, or a newer one",
		format, who, Format,
	)
}

// printable drops what could play tricks on a terminal.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return -1
	}
	return r
}
