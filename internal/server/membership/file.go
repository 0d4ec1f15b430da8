package membership

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/files/wholefile"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/sharedkeys"
	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/internal/storage/etcd/roster"
	"github.com/everynode/everynode/internal/storage/members"
	"github.com/everynode/everynode/internal/version"
)

// ErrBeginAnew says that the server has ended in order and is to be started again with
// the same options. It was alone and another wants to join: what is alone is faster, and is
// chosen when a server starts. Or its database must forget an authority.
var ErrBeginAnew = errors.New("the server begins again, which takes some seconds")

const (
	FileName     = "members.json"
	defaultPeers = "2380"
)

// File is what a server keeps that is one of several.
type File struct {
	// Name is the server's, URL where the others reach its database.
	Name, URL string
	members.Settings
	// Known are the servers as they were last seen.
	Known []members.Known
	// Left is set when the server has left, Unfinished while it joins.
	Left, Unfinished bool
	// Token is the ID of the join token with which the server has joined, until that is removed.
	Token string `json:",omitempty"`
	// Removed is set when the others have said that it is a server no more.
	Removed bool `json:",omitempty"`

	// AgreedKeys are those that all servers had when this one last looked, by their hash;
	// BegunKeys those that it began to take.
	AgreedKeys, BegunKeys string `json:",omitempty"`
	// AgreedPeers and BegunPeers are the same of the authority of the databases.
	AgreedPeers, BegunPeers string `json:",omitempty"`

	// moved is set when URL is another than that in the file.
	moved bool
}

// Read reads the file in a data directory; nil where a server is alone.
func Read(dataDir string) (*File, error) {
	path := filepath.Join(dataDir, FileName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || dataDir == "" {
		return nil, nil //nolint:nilnil // A server that is alone has none. A folder that is none is told of elsewhere.
	}
	m := &File{}
	if err == nil {
		err = json.Unmarshal(data, m)
	}
	if err == nil && (m.Name == "" || HostOf(m.URL) == "") {
		err = errors.New("it names no server")
	}
	if err != nil {
		return nil, fmt.Errorf(
			"read which servers belong together from %s: %w; restore it from a backup, or remove this server on another and "+
				"join it again",
			path, err,
		)
	}
	return m, nil
}

// NameIn is the name, among others, of the server of a data directory; empty if it is alone.
func NameIn(dataDir string) (string, error) {
	m, err := Read(dataDir)
	if err != nil || m == nil {
		return "", err
	}
	return m.Name, nil
}

// Keep writes what Apply has changed. The data directory must be locked.
func (m *File) Keep(dataDir string) error {
	if m == nil || !m.moved {
		return nil
	}
	m.moved = false
	return m.Write(dataDir)
}

// joinAnew says what to do with a server that is one no more.
func (m *File) joinAnew(dataDir string) string {
	return fmt.Sprintf(
		"move %s away and, if it is to be one again, run \"everynode server --join https://ANOTHER:6443 --token TOKEN\" "+
			"with an empty folder",
		dataDir,
	)
}

// Refused says what to do about a database that may not take part any more, and writes that down
// where it is for good.
func (m *File) Refused(dataDir string, err error) error {
	switch {
	case errors.Is(err, etcd.ErrRemoved):
		gone := *m
		gone.Removed = true
		if unwritten := gone.Write(dataDir); unwritten != nil {
			err = fmt.Errorf("%w (%w)", err, unwritten)
		}
		return fmt.Errorf("%w; %s", err, m.joinAnew(dataDir))
	case errors.Is(err, etcd.ErrStranger):
		return fmt.Errorf(
			"%w; run \"everynode members remove %s\" on another server, if it is still on the list, and %s",
			err, m.Name, m.joinAnew(dataDir),
		)
	}
	return err
}

// CheckKeys refuses a folder that has lost keys which it shares with other servers. Made
// again they would be another cluster's, and the others would take them.
func (m *File) CheckKeys(dataDir string) error {
	if m == nil || m.Unfinished || m.Left || m.Removed || m.AgreedKeys == "" && len(m.Known) < 2 {
		return nil
	}
	dir := filepath.Join(dataDir, "pki")
	missing, err := pki.MissingOfCluster(dir)
	if err != nil || len(missing) == 0 {
		return err
	}
	return fmt.Errorf(
		"%s lacks %s, which this server shares with others; copy it from another server's folder, or remove this server "+
			"there (everynode members remove %s), move %s away and join it again",

		dir,
		strings.Join(missing, ", "),
		m.Name,
		dataDir,
	)
}

func (m *File) Write(dataDir string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode which servers belong together: %w", err)
	}
	if err := wholefile.Write(filepath.Join(dataDir, FileName), 0o600, wholefile.Bytes(append(data, '\n'))); err != nil {
		return fmt.Errorf("write which servers belong together: %w", err)
	}
	return nil
}

// Peers is how the database takes part among others; nil for one that is alone.
func (m *File) Peers(dataDir string) (*etcd.Peers, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // As Read.
	}
	keys, err := pki.OpenPeers(folder.Peers(dataDir), HostOf(m.URL), clock.RealClock{})
	if err != nil {
		return nil, err
	}
	p := &etcd.Peers{
		Name:    m.Name,
		URL:     m.URL,
		Listen:  strings.TrimPrefix(m.URL, "https://"),
		Keys:    keys,
		Version: version.Kubernetes(),
		Shared: func(which etcd.Shared) ([]byte, error) {
			if which == etcd.PeerKeys {
				return sharedkeys.ExportPeers(dataDir)
			}
			return sharedkeys.Export(dataDir)
		},
	}
	for _, k := range m.Known {
		p.Known = append(p.Known, roster.Member{ID: k.ID, Name: k.Name, URL: k.URL})
	}
	return p, nil
}

// Apply gives the options what all servers are told alike, and refuses what contradicts it.
func (m *File) Apply(o *config.Options) error {
	if m == nil {
		return nil
	}
	if m.Left {
		return fmt.Errorf("this server has left its cluster; %s", m.joinAnew(o.DataDir))
	}
	if m.Removed {
		return fmt.Errorf("%w; %s", etcd.ErrRemoved, m.joinAnew(o.DataDir))
	}
	if m.Unfinished {
		return fmt.Errorf(
			"this server was stopped while it joined; start it again with --join and --token, or move %s away to start again",
			o.DataDir,
		)
	}
	for _, s := range []struct {
		flag         string
		value        *string
		usual, wants string
	}{
		{"service-cidr", &o.ServiceCIDR, config.Defaults().ServiceCIDR, m.ServiceCIDR},
		{"server-name", &o.Name, "", m.Name},
		{"etcd-prefix", &o.API.Etcd.StorageConfig.Prefix, config.Defaults().API.Etcd.StorageConfig.Prefix, m.Prefix},
	} {
		if *s.value != s.usual && *s.value != s.wants && s.wants != "" {
			return fmt.Errorf(
				"--%s %s differs from %s, which this cluster's servers have; leave it out", s.flag, *s.value, s.wants,
			)
		}
		*s.value = cmp.Or(s.wants, *s.value)
	}
	o.ClusterCIDR = cmp.Or(o.ClusterCIDR, m.ClusterCIDR) // it can grow
	if o.PeerAddress != "" && "https://"+o.PeerAddress != m.URL {
		m.URL, m.moved = "https://"+o.PeerAddress, true
	}
	o.NodeMaskSize = cmp.Or(o.NodeMaskSize, m.NodeMaskSize)
	return nil
}
