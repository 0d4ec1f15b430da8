// Package server is the composition root of the control plane: it opens the
// data directory, starts the database, the API server, the controllers and the
// scheduler in that order, and stops them in the reverse order.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"
	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver"
	"github.com/everynode/everynode/internal/apiserver/inprocess"
	"github.com/everynode/everynode/internal/apiserver/insidedoor"
	"github.com/everynode/everynode/internal/apiserver/options"
	"github.com/everynode/everynode/internal/apiserver/storages"
	"github.com/everynode/everynode/internal/datadir"
	"github.com/everynode/everynode/internal/encryption"
	"github.com/everynode/everynode/internal/etcd"
	"github.com/everynode/everynode/internal/etcd/external"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/backups"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/folder"
)

// Server is a control plane.
type Server struct {
	options  config.Options
	settings options.Completed
	unlock   func()
	listener net.Listener
	pki      *pki.Bundle
	service  *net.IPNet
	pods     node.PodNetworks
	etcd     *etcd.Server
	// lentMetrics are those of the database.
	lentMetrics lent
	// external is nil where the database is embedded.
	external *external.Etcd
	api      *apiserver.Server
	ready    chan struct{}

	// membership is nil for a server that is alone, and what it holds does not change.
	membership *membership
	// copying has room for one who copies the database.
	copying chan struct{}
	// changing is held while it changes who belongs to the cluster.
	changing   sync.Mutex
	remembered string
	// restored names the last restore of the database.
	restored  string
	leaving   atomic.Bool
	again     sync.Once
	beginAnew chan struct{}
	// servers are where the servers are that live.
	servers atomic.Pointer[[]netip.AddrPort]
}

// New checks the options, locks the data directory and opens the listeners. On
// an error nothing is left open.
func New(o config.Options) (*Server, error) {
	s := &Server{options: o, ready: make(chan struct{}), beginAnew: make(chan struct{}),
		copying: make(chan struct{}, 1)}
	if err := s.open(); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

func (s *Server) open() (err error) {
	s.membership, err = readMembership(s.options.DataDir)
	if err == nil {
		err = s.membership.apply(&s.options)
	}
	if err != nil {
		return err
	}
	o, err := s.options.Complete()
	if err != nil {
		return err
	}
	s.options, s.settings, s.service, s.pods = o.Options, o.Settings, o.Service, o.Pods
	forgetDir, err := datadir.Make(o.DataDir, 0o700)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			forgetDir()
		}
	}()
	var forgetLock func()
	s.unlock, forgetLock, err = folder.Lock(o.DataDir)
	if err != nil {
		return err
	}
	if err = errors.Join(folder.RefuseUnfinished(o.DataDir), datadir.CheckWritten(o.DataDir, datadir.ThisProgram())); err == nil {
		err = errors.Join(s.membership.keep(o.DataDir), s.membership.checkKeys(o.DataDir), backups.ClearScratch(o.DataDir))
	}
	if err == nil {
		s.listener, err = listen(o.Listen)
	}
	if err != nil {
		forgetLock()
		return err
	}
	names, ips := o.CertificateFor()
	s.pki, err = pki.LoadOrCreate(filepath.Join(o.DataDir, "pki"),
		pki.Options{ServerIPs: ips, ServerNames: names})
	if err != nil {
		return fmt.Errorf("open the cluster's certificates: %w", err)
	}
	return datadir.Sign(o.DataDir, datadir.ThisProgram())
}

// advertise returns the address and port that pods and nodes use.
func (s *Server) advertise() (net.IP, int) {
	_, portText, _ := net.SplitHostPort(s.listener.Addr().String())
	port, _ := strconv.Atoi(portText)
	return s.options.Advertised(), port
}

// URL is the API's address as it is written to the kubeconfig.
func (s *Server) URL() string {
	if len(s.options.Balancers) > 0 {
		return "https://" + s.options.Balancers[0]
	}
	host, port, _ := net.SplitHostPort(s.listener.Addr().String())
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, port)
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (s *Server) Kubeconfig() string { return filepath.Join(s.options.DataDir, "kubeconfig") }

// Ready is closed when the API answers and the cluster's basic objects exist.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// ClientConfig returns a configuration that reaches the API in process with
// full rights. It works after Ready.
func (s *Server) ClientConfig() *restclient.Config { return s.api.LoopbackConfig() }

// Run serves until ctx ends or a part fails. With ErrBeginAnew it has ended in order
// and wants to be made and run again.
func (s *Server) Run(ctx context.Context) (err error) {
	defer s.release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	config := apiserver.Config{Options: s.settings, PKI: s.pki, Listener: s.listener, ServiceCIDR: s.service,
		OpenReserving: external.OpenReserving}
	config.KeyFile, err = filepath.Abs(encryption.File(s.options.DataDir))
	if err != nil {
		return fmt.Errorf("find the data dir: %w", err)
	}
	config.AdvertiseAddress, config.AdvertisePort = s.advertise()
	config.Name = s.name()
	config.Presence, config.Servers = s.several(), s.serverAddresses
	if err := s.openDatabase(ctx, &config); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it was ready
		}
		return err
	}
	err = s.makeAPI(ctx, config)
	if err != nil {
		return err
	}
	parts := newParts(ctx)
	// What works through the API ends before it, so that it can say that it ends.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	if !s.several() {
		defer context.AfterFunc(ctx, stopServing)()
	}
	parts.run("API server", func(context.Context) error { return s.api.Run(serving) })
	if s.etcd != nil {
		parts.run("database", s.watchDatabase)
		parts.run("membership", s.watchMembership)
	}
	parts.run("certificates", func(ctx context.Context) error { s.pki.Run(ctx); return nil })
	if s.membership != nil {
		parts.run("certificate for the other servers", func(ctx context.Context) error {
			pki.KeepPeers(ctx, folder.Peers(s.options.DataDir), hostOf(s.membership.URL), clock.RealClock{})
			return nil
		})
	}
	if s.membership != nil {
		parts.run("keys of all servers", s.followKeys)
		parts.run("authority of the servers' databases", s.followPeers)
	}
	if s.external != nil {
		parts.run("keys of all servers", s.followExternalKeys)
	}
	parts.run("control loops", func(ctx context.Context) error {
		defer stopServing()
		return s.runControl(ctx)
	})
	err = parts.wait(s.databaseLost(), partsPatience)
	if errors.Is(err, etcd.ErrRemoved) && s.leaving.Load() {
		klog.FromContext(ctx).Info("This server has left the cluster")
		return nil
	}
	if errors.Is(err, etcd.ErrRemoved) {
		return s.membership.refused(s.options.DataDir, err)
	}
	return err
}

// several reports whether there are other servers, or may be.
func (s *Server) several() bool { return s.membership != nil || !s.settings.Embedded() }

// watchMembership ends when this server is to begin anew.
func (s *Server) watchMembership(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.beginAnew:
		return ErrBeginAnew
	}
}

// serverAddresses are where the servers are that live.
func (s *Server) serverAddresses() []netip.AddrPort {
	if at := s.servers.Load(); at != nil {
		return *at
	}
	ip, port := s.advertise()
	return []netip.AddrPort{netip.AddrPortFrom(addrOf(ip), uint16(port))} //nolint:gosec // A port.
}

func addrOf(ip net.IP) netip.Addr {
	address, _ := netip.AddrFromSlice(ip)
	return address.Unmap()
}

// openDatabase starts the database of this process, or finds out whether the etcd can
// be used that the options name.
func (s *Server) openDatabase(ctx context.Context, config *apiserver.Config) error {
	if !s.settings.Embedded() {
		at := s.settings.Etcd.StorageConfig
		err := external.Probe(ctx, at)
		if err == nil {
			config.Stored, err = external.Stored(at.Transport)
		}
		if err == nil {
			s.external, err = external.Open(at)
		}
		if err != nil {
			return err
		}
		config.OpenStorage = s.external.Open
		return s.checkAgreement(ctx)
	}
	peers, err := s.membership.peers(s.options.DataDir)
	if err != nil {
		return err
	}
	database, err := etcd.Start(ctx, etcd.Options{
		Dir: filepath.Join(s.options.DataDir, "etcd"), NoFsync: s.options.NoFsync, Keep: s.options.KeepHistory,
		Peers:  peers,
		Writer: writerOf,
	})
	if err != nil && s.membership != nil {
		return s.membership.refused(s.options.DataDir, err)
	}
	if err != nil {
		return err
	}
	s.etcd = database
	s.lentMetrics.Registerer = s.options.Metrics
	for _, metric := range database.Metrics() {
		if s.options.Metrics == nil {
			break
		}
		err = s.lentMetrics.Register(metric)
		if err != nil {
			return fmt.Errorf("show the size of the database: %w", err)
		}
	}
	config.OpenStorage, config.OpenReserving, config.Stored = database.Open, database.OpenReserving, database.Stored()
	config.Members, config.Backups = admission{s}, backedUp{s}
	config.OpenHot = storages.Hot(database.OpenHot)
	if peers != nil {
		config.Quorum = database.Quorum
	}
	return nil
}

// runControl waits for the API, announces it, and runs what works through it.
func (s *Server) runControl(ctx context.Context) error {
	if err := s.waitReady(ctx); err != nil {
		return err
	}
	if err := s.pki.WriteKubeconfig(s.Kubeconfig(), s.URL()); err != nil {
		return fmt.Errorf("write the administrator's kubeconfig: %w", err)
	}
	s.pki.OnChange(func() {
		klog.FromContext(ctx).Info("Keys or certificates were replaced")
		if err := s.pki.WriteKubeconfig(s.Kubeconfig(), s.URL()); err != nil {
			klog.FromContext(ctx).Error(err, "Could not write the administrator's kubeconfig anew")
		}
	})
	if s.etcd != nil {
		s.etcd.Serve()
	}
	close(s.ready)
	klog.FromContext(ctx).Info("The API server is ready", "url", s.URL(), "kubeconfig", s.Kubeconfig())
	if !s.several() {
		return s.work(ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.keepPresence(ctx) })
	group.Go(func() error { return s.runElected(ctx) })
	return group.Wait()
}

func (s *Server) waitReady(ctx context.Context) error {
	client, err := restclient.UnversionedRESTClientFor(unversioned(s.api.LoopbackConfig()))
	if err != nil {
		return fmt.Errorf("make the readiness client: %w", err)
	}
	for {
		if _, err = client.Get().AbsPath("/readyz").DoRaw(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *Server) release() {
	if s.listener != nil {
		_ = s.listener.Close()
	}
	if s.etcd != nil {
		s.lentMetrics.takeBack()
		s.etcd.Close()
	}
	if s.unlock != nil {
		s.unlock()
	}
}

// unversioned prepares a configuration for paths outside the API groups.
func unversioned(c *restclient.Config) *restclient.Config {
	c.GroupVersion = &schema.GroupVersion{}
	c.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	return c
}

// writerOf names who has a share of what can be written to the database. The server's own control loops may write as
// much
// as there is to do.
func writerOf(ctx context.Context) string {
	writer, ok := request.UserFrom(ctx)
	if !ok || inprocess.Is(ctx) || insidedoor.Inside(ctx) {
		return ""
	}
	return writer.GetName()
}
