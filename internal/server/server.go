// Package server is the composition root of the control plane: it opens the
// data directory, starts the database, the API server, the controllers and the
// scheduler in that order, and stops them in the reverse order.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver"
	"github.com/everynode/everynode/internal/apiserver/options"
	"github.com/everynode/everynode/internal/files/datadir"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/agreement"
	"github.com/everynode/everynode/internal/server/backups"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/membership"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/internal/storage/etcd/external"
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

	// servers are those of the cluster, of which this is one.
	servers *membership.Servers
	// agreement is nil where the database is embedded.
	agreement *agreement.Agreement
	// copying has room for one who copies the database.
	copying chan struct{}
	// restored names the last restore of the database.
	restored string
}

// New checks the options, locks the data directory and opens the listeners. On
// an error nothing is left open.
func New(o config.Options) (*Server, error) {
	s := &Server{options: o, ready: make(chan struct{}),
		copying: make(chan struct{}, 1)}
	if err := s.open(); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

func (s *Server) open() (err error) {
	file, err := membership.Read(s.options.DataDir)
	if err == nil {
		err = file.Apply(&s.options)
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
	err = errors.Join(folder.RefuseUnfinished(o.DataDir), datadir.CheckWritten(o.DataDir, datadir.ThisProgram()))
	if err == nil {
		err = errors.Join(file.Keep(o.DataDir), file.CheckKeys(o.DataDir), backups.ClearScratch(o.DataDir))
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
	s.servers = membership.New(file, membership.Config{
		Options: s.options, Settings: s.settings, Pods: s.pods, Advertised: s.advertise,
		API: s.ClientConfig, Reload: s.pki.Reload,
	})
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

// Run serves until ctx ends or a part fails. With membership.ErrBeginAnew it has ended in order
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
	config.Name = s.servers.Name()
	config.Presence, config.Servers = s.servers.Several(), s.servers.Addresses
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
	if !s.servers.Several() {
		defer context.AfterFunc(ctx, stopServing)()
	}
	parts.run("API server", func(context.Context) error { return s.api.Run(serving) })
	if s.etcd != nil {
		parts.run("database", s.watchDatabase)
		parts.run("membership", s.servers.Watch)
	}
	parts.run("certificates", func(ctx context.Context) error { s.pki.Run(ctx); return nil })
	if s.servers.Member() {
		parts.run("certificate for the other servers", s.servers.KeepCertificate)
		parts.run("keys of all servers", s.servers.FollowKeys)
		parts.run("authority of the servers' databases", s.servers.FollowPeers)
	}
	if s.agreement != nil {
		parts.run("keys of all servers", s.agreement.Follow)
	}
	parts.run("control loops", func(ctx context.Context) error {
		defer stopServing()
		return s.runControl(ctx)
	})
	err = parts.wait(s.databaseLost(), partsPatience)
	if errors.Is(err, etcd.ErrRemoved) && s.servers.Leaving() {
		klog.FromContext(ctx).Info("This server has left the cluster")
		return nil
	}
	if errors.Is(err, etcd.ErrRemoved) {
		return s.servers.Refused(err)
	}
	return err
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
			klog.FromContext(ctx).Error(err, "Could not write the administrator's kubeconfig again")
		}
	})
	if s.etcd != nil {
		s.etcd.Serve()
	}
	close(s.ready)
	klog.FromContext(ctx).Info("The API server is ready", "url", s.URL(), "kubeconfig", s.Kubeconfig())
	if !s.servers.Several() {
		return s.work(ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.servers.KeepPresence(ctx) })
	group.Go(func() error { return s.candidate().Run(ctx) })
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
