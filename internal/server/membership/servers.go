package membership

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/options"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/election/fitness"
	"github.com/everynode/everynode/internal/storage/etcd"
)

// Config is what a server that runs has, and what this room needs of it.
type Config struct {
	// Options and Settings are complete.
	Options  config.Options
	Settings options.Completed
	Pods     node.PodNetworks
	// Advertised returns the address and port at which pods and nodes reach this server.
	Advertised func() (net.IP, int)
	// API is how this server reaches its own API. Nobody asks before that exists.
	API func() *restclient.Config
	// Reload reads the keys of the cluster again.
	Reload func() error
}

// Servers is what a server that runs knows of the servers of its cluster, and how these change.
type Servers struct {
	options   config.Options
	settings  options.Completed
	pods      node.PodNetworks
	advertise func() (net.IP, int)
	api       func() *restclient.Config
	reload    func() error

	// file is nil for a server that is alone, and what it holds of the cluster does not change.
	file *File
	// etcd is nil where the database is not embedded.
	etcd *etcd.Server
	// changing is held while it changes who belongs to the cluster.
	changing   sync.Mutex
	remembered string
	leaving    atomic.Bool
	again      sync.Once
	beginAnew  chan struct{}
	// living are where the servers are that live.
	living atomic.Pointer[[]netip.AddrPort]
	// others are the other servers that live, and way is why this one gives way to one of them.
	others atomic.Pointer[[]fitness.Server]
	way    atomic.Pointer[string]
}

// New returns the servers as one of them knows them that has this file; nil if it is alone.
func New(file *File, c Config) *Servers {
	return &Servers{
		options: c.Options, settings: c.Settings, pods: c.Pods, advertise: c.Advertised, api: c.API, reload: c.Reload,
		file: file, beginAnew: make(chan struct{}),
	}
}

// Use has the members of this database be the servers.
func (s *Servers) Use(database *etcd.Server) { s.etcd = database }

// Member reports whether this server is one of several with a database that each of them has a part of.
func (s *Servers) Member() bool { return s.file != nil }

// Several reports whether there are other servers, or may be.
func (s *Servers) Several() bool { return s.file != nil || !s.settings.Embedded() }

// Peers is how the database takes part among others; nil for one that is alone.
func (s *Servers) Peers() (*etcd.Peers, error) { return s.file.Peers(s.options.DataDir) }

// Refused says what to do about a database that may not take part any more; see File.
func (s *Servers) Refused(err error) error {
	if s.file == nil {
		return err
	}
	return s.file.Refused(s.options.DataDir, err)
}

// Leaving reports whether this server was told to leave.
func (s *Servers) Leaving() bool { return s.leaving.Load() }

// Watch ends with ErrBeginAnew when this server is to begin again, and without an error when ctx ends.
func (s *Servers) Watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.beginAnew:
		return ErrBeginAnew
	}
}

// Addresses are where the servers are that live.
func (s *Servers) Addresses() []netip.AddrPort {
	if at := s.living.Load(); at != nil {
		return *at
	}
	ip, port := s.advertise()
	return []netip.AddrPort{netip.AddrPortFrom(addrOf(ip), uint16(port))} //nolint:gosec // A port.
}

func addrOf(ip net.IP) netip.Addr {
	address, _ := netip.AddrFromSlice(ip)
	return address.Unmap()
}

// peerURL is where others reach this server's database, or will once it is not alone.
func (s *Servers) peerURL() (string, error) {
	if s.file != nil {
		return s.file.URL, nil
	}
	ip, _ := s.advertise()
	return peerURL(s.options.PeerAddress, ip.String())
}

// Name is this server's among others.
func (s *Servers) Name() string {
	if s.file != nil {
		return s.file.Name
	}
	name := ServerName(s.options.Name)
	if s.options.Name == "" && !s.settings.Embedded() {
		// Nobody has seen to it that names differ.
		ip, port := s.advertise()
		h := fnv.New32a()
		fmt.Fprint(h, ip, port)
		name = fmt.Sprintf("%s-%x", name, h.Sum32())
	}
	return name
}

// GivesWay says why the control loops of this server give way to those of another, which knows more of what is stored;
// "" if they do not. Strange returns the objects that this server does not know all of. It is not asked while no server
// lives that knows more.
func (s *Servers) GivesWay(ctx context.Context, strange func(context.Context) ([]string, error)) string {
	var others []fitness.Server
	if known := s.others.Load(); known != nil {
		others = *known
	}
	why := ""
	if fitness.Newer(v1alpha1.Schema, others).Name != "" {
		all, err := strange(ctx)
		if err != nil { // it is asked again soon
			klog.FromContext(ctx).V(2).Info("Cannot tell whether this server is to give way to another", "err", err)
			return s.givesWay()
		}
		why = fitness.GivesWay(v1alpha1.Schema, others, all)
	}
	s.way.Store(&why)
	return why
}

// givesWay is what was last found.
func (s *Servers) givesWay() string {
	if why := s.way.Load(); why != nil {
		return *why
	}
	return ""
}
