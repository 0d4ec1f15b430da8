package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/etcd"
	"github.com/everynode/everynode/internal/etcd/roster"
	"github.com/everynode/everynode/internal/members"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/sharedkeys"
	"github.com/everynode/everynode/internal/version"
	"github.com/everynode/everynode/internal/wholefile"
)

// ErrBeginAnew says that the server has ended in order and is to be started again with
// the same options. It was alone and another wants to join: what is alone is faster, and is
// chosen when a server starts. Or its database must forget an authority.
var ErrBeginAnew = errors.New("the server begins anew, which takes some seconds")

const (
	membershipFile = "members.json"
	defaultPeers   = "2380"
)

// membership is what a server keeps that is one of several.
type membership struct {
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

func readMembership(dataDir string) (*membership, error) {
	path := filepath.Join(dataDir, membershipFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || dataDir == "" {
		return nil, nil //nolint:nilnil // A server that is alone has none. A folder that is none is told of elsewhere.
	}
	m := &membership{}
	if err == nil {
		err = json.Unmarshal(data, m)
	}
	if err == nil && (m.Name == "" || hostOf(m.URL) == "") {
		err = errors.New("it names no server")
	}
	if err != nil {
		return nil, fmt.Errorf("read which servers belong together from %s: %w; restore it from a backup, or remove this server on another and join it anew", path, err)
	}
	return m, nil
}

// NameIn is the name, among others, of the server of a data directory; empty if it is alone.
func NameIn(dataDir string) (string, error) {
	m, err := readMembership(dataDir)
	if err != nil || m == nil {
		return "", err
	}
	return m.Name, nil
}

// keep writes what apply has changed. The data directory must be locked.
func (m *membership) keep(dataDir string) error {
	if m == nil || !m.moved {
		return nil
	}
	m.moved = false
	return m.write(dataDir)
}

// joinAnew says what to do with a server that is one no more.
func (m *membership) joinAnew(dataDir string) string {
	return fmt.Sprintf("move %s away and, if it is to be one again, run \"everynode server --join https://ANOTHER:6443 --token TOKEN\" with an empty folder", dataDir)
}

// refused says what to do about a database that may not take part any more, and writes that down
// where it is for good.
func (m *membership) refused(dataDir string, err error) error {
	switch {
	case errors.Is(err, etcd.ErrRemoved):
		gone := *m
		gone.Removed = true
		if unwritten := gone.write(dataDir); unwritten != nil {
			err = fmt.Errorf("%w (%w)", err, unwritten)
		}
		return fmt.Errorf("%w; %s", err, m.joinAnew(dataDir))
	case errors.Is(err, etcd.ErrStranger):
		return fmt.Errorf("%w; run \"everynode members remove %s\" on another server, if it is still on the list, and %s", err, m.Name, m.joinAnew(dataDir))
	}
	return err
}

// checkKeys refuses a folder that has lost keys which it shares with other servers. Made
// anew they would be another cluster's, and the others would take them.
func (m *membership) checkKeys(dataDir string) error {
	if m == nil || m.Unfinished || m.Left || m.Removed || m.AgreedKeys == "" && len(m.Known) < 2 {
		return nil
	}
	dir := filepath.Join(dataDir, "pki")
	missing, err := pki.MissingOfCluster(dir)
	if err != nil || len(missing) == 0 {
		return err
	}
	return fmt.Errorf("%s lacks %s, which this server shares with others; copy it from another server's folder, or remove this server there (everynode members remove %s), move %s away and join it anew",
		dir, strings.Join(missing, ", "), m.Name, dataDir)
}

func (m *membership) write(dataDir string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode which servers belong together: %w", err)
	}
	if err := wholefile.Write(filepath.Join(dataDir, membershipFile), 0o600, wholefile.Bytes(append(data, '\n'))); err != nil {
		return fmt.Errorf("write which servers belong together: %w", err)
	}
	return nil
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// peers is how the database takes part among others; nil for one that is alone.
func (m *membership) peers(dataDir string) (*etcd.Peers, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // As readMembership.
	}
	keys, err := pki.OpenPeers(folder.Peers(dataDir), hostOf(m.URL), clock.RealClock{})
	if err != nil {
		return nil, err
	}
	p := &etcd.Peers{Name: m.Name, URL: m.URL, Listen: strings.TrimPrefix(m.URL, "https://"), Keys: keys, Version: version.Kubernetes(), Shared: func(which etcd.Shared) ([]byte, error) {
		if which == etcd.PeerKeys {
			return sharedkeys.ExportPeers(dataDir)
		}
		return sharedkeys.Export(dataDir)
	}}
	for _, k := range m.Known {
		p.Known = append(p.Known, roster.Member{ID: k.ID, Name: k.Name, URL: k.URL})
	}
	return p, nil
}

// apply gives the options what all servers are told alike, and refuses what contradicts it.
func (m *membership) apply(o *config.Options) error {
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
		return fmt.Errorf("this server was stopped while it joined; start it again with --join and --token, or move %s away to start anew", o.DataDir)
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
			return fmt.Errorf("--%s %s differs from %s, which this cluster's servers have; leave it out", s.flag, *s.value, s.wants)
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

// serverName is what a server is called that has not been given a name.
func serverName(given string) string {
	if given != "" {
		return given
	}
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	short, _, _ := strings.Cut(strings.ToLower(host), ".")
	return short
}

// peerURL is where the others reach the database of a server that is at an address.
func peerURL(given, advertised string) (string, error) {
	address := cmp.Or(given, net.JoinHostPort(advertised, defaultPeers))
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || port == "" || port == "0" || host == "" || ip != nil && ip.IsUnspecified() {
		return "", fmt.Errorf("the address %q for the other servers is not of the form HOST:PORT; give one at which they reach this machine with --peer-address", address)
	}
	return "https://" + address, nil
}

// canListen reports whether the port for the other servers can be opened here.
func canListen(peer string) error {
	address := strings.TrimPrefix(peer, "https://")
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for the other servers on %s: %w; choose another --peer-address", address, err)
	}
	return listener.Close()
}

// name is this server's among others.
func (s *Server) name() string {
	if s.membership != nil {
		return s.membership.Name
	}
	name := serverName(s.options.Name)
	if s.options.Name == "" && !s.settings.Embedded() {
		// Nobody has seen to it that names differ.
		ip, port := s.advertise()
		h := fnv.New32a()
		fmt.Fprint(h, ip, port)
		name = fmt.Sprintf("%s-%x", name, h.Sum32())
	}
	return name
}

// Reset makes the server of a data directory, which must not run, the only one, with
// the data that it has.
func Reset(ctx context.Context, dataDir string, now time.Time) error {
	m, err := readMembership(dataDir)
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("%s holds no server that is one of several", dataDir)
	}
	if m.Left || m.Removed {
		return fmt.Errorf("the server in %s left its cluster or was removed from it, and cannot be made a cluster of its own; restore a backup, or reset a server that was not removed", dataDir)
	}
	release, _, err := folder.Lock(dataDir)
	if err != nil {
		return err
	}
	defer release()
	if err := clearReset(dataDir); err != nil {
		return err
	}
	if !folder.HasDatabase(dataDir) {
		return fmt.Errorf("%s holds no database", dataDir)
	}
	database, work := filepath.Join(dataDir, "etcd"), filepath.Join(dataDir, folder.UnfinishedReset)
	size, err := folder.Size(database)
	if err == nil {
		err = folder.HaveRoom(dataDir, resetRoom*size)
	}
	if err == nil {
		err = os.Mkdir(work, 0o700)
	}
	made := filepath.Join(work, "made")
	if err == nil {
		err = etcd.Reset(ctx, database, work, made, now)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make a database of one server: %w", err), clearReset(dataDir))
	}
	return m.takeReset(dataDir, made)
}

// resetRoom is how many times the size of a database a reset may take: a copy, a snapshot of that, and as much as a
// restore of the snapshot.
const resetRoom = 5

// takeReset puts a database that is ready in the place of the one before.
func (m *membership) takeReset(dataDir, made string) error {
	database, work := filepath.Join(dataDir, "etcd"), filepath.Join(dataDir, folder.UnfinishedReset)
	m.Known = nil
	err := m.write(dataDir)
	if err == nil {
		err = folder.Sync(work)
	}
	if err == nil {
		err = os.Rename(database, filepath.Join(work, "before"))
	}
	if err == nil {
		err = os.Rename(made, database)
	}
	if err == nil {
		err = folder.Sync(dataDir)
	}
	if err != nil {
		return fmt.Errorf("put the new database in the place of the one before: %w", err)
	}
	return clearReset(dataDir)
}

// clearReset removes what a reset has left, and puts a database back that it had moved away and not replaced.
func clearReset(dataDir string) error {
	database, work := filepath.Join(dataDir, "etcd"), filepath.Join(dataDir, folder.UnfinishedReset)
	if !folder.Exists(work) {
		return nil
	}
	var err error
	if before := filepath.Join(work, "before"); !folder.Exists(database) && folder.Exists(before) {
		err = os.Rename(before, database)
	}
	if err == nil {
		err = wholefile.SyncFolder(dataDir)
	}
	if err == nil {
		err = os.RemoveAll(work)
	}
	if err == nil {
		err = wholefile.SyncFolder(dataDir)
	}
	if err != nil {
		return fmt.Errorf("remove what a reset has left: %w", err)
	}
	return nil
}
