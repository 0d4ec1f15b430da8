package join

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki"
)

// Config says who joins what.
type Config struct {
	// Server is the URL of the API server, https://HOST:PORT.
	Server string
	// Token is a join token, ID.SECRET.CAHASH. It may be empty when the node has joined before.
	Token string
	// NodeName is the name of the Node, and of the user system:node:NAME.
	NodeName string
	// NodeIPs returns the addresses that the serving certificate is for, as they are now; none while none is known.
	NodeIPs func() []net.IP
	// DataDir holds the directory pki.
	DataDir string
	// Patience is how long an unreachable server is tried and how long a certificate is waited for; the default is a
	// minute.
	Patience time.Duration
	// TrustInterval is how often the server is asked which authorities count; the default is five minutes.
	TrustInterval time.Duration
	// Clock tells the time; the default is the real one.
	Clock clock.Clock
}

// Identity is a node that belongs to a cluster.
type Identity struct {
	cfg     Config
	server  *url.URL
	servers *servers
	store   store
	trusted atomic.Pointer[authorities]
	client  atomic.Pointer[tls.Certificate]
	serving atomic.Pointer[tls.Certificate]
	// shownFrom is when the latest made of the servers' certificates was made; nil before any was seen.
	shownFrom atomic.Pointer[time.Time]
	// asked are the addresses for which the serving certificate was asked for last in this run, nil for not yet.
	asked atomic.Pointer[[]net.IP]
	// served is closed when there is a serving certificate.
	served    chan struct{}
	firstOnce sync.Once
	// transport shows and trusts what is right at each moment; reconnect lets its connections begin again.
	transport http.RoundTripper
	reconnect func()
	// refused is set while the server takes the client certificate for nobody's.
	refused atomic.Bool
	// stranger is set while the server shows a certificate of an authority that the node does not trust.
	stranger atomic.Bool
	// unbound is set while the server does not know the node's key.
	unbound atomic.Bool
	// restoring guards restores.
	restoring sync.Mutex
	restores  restores
	// wakeClient and wakeServing let the keepers of the certificates look whether theirs is outdated.
	wakeClient, wakeServing chan struct{}
}

// Join returns the node's identity: the stored one, or a new one got with the join token. A node that joined before
// gets its identity also when its certificate cannot be used now, so that it can run what needs no server; Run joins
// again when that can be done. Errors are one line that says what is wrong and, where that is known, what to do.
func Join(ctx context.Context, cfg Config) (*Identity, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Patience == 0 {
		cfg.Patience = time.Minute
	}
	if cfg.TrustInterval == 0 {
		cfg.TrustInterval = defaultTrustInterval
	}
	server, err := parseServer(cfg.Server)
	if err != nil {
		return nil, err
	}
	id := &Identity{
		cfg:         cfg,
		server:      server,
		store:       store{filepath.Join(cfg.DataDir, "pki"), newContents()},
		served:      make(chan struct{}),
		wakeClient:  make(chan struct{}, 1),
		wakeServing: make(chan struct{}, 1),
	}
	id.servers = newServers(id.store, hostPort(server), cfg.NodeName, cfg.Clock)
	id.transport, id.reconnect = id.newTransport()
	// A node that joined before nodes had keys has the server bind its name to one.
	id.unbound.Store(!id.store.has(identityFile))
	if id.store.has(identityFile) {
		if _, err := id.identityKey(); err != nil {
			return nil, err
		}
	}
	var trusted authorities
	trusted.cluster, err = id.authority(ctx)
	if err != nil {
		return nil, err
	}
	trusted.nodes, err = id.store.readAuthorities(nodeCAFile)
	if err != nil {
		return nil, err
	}
	id.trusted.Store(&trusted)
	if err := errors.Join(id.loadClient(), id.readRestored()); err != nil {
		return nil, err
	}
	switch pair := id.client.Load(); {
	case pair == nil:
		err = id.bootstrap(ctx)
	case !valid(pair.Leaf, id.Now()):
		id.rejoin(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := id.loadServing(); err != nil {
		return nil, err
	}
	if err := id.writeKubeconfig(); err != nil {
		return nil, err
	}
	return id, id.store.keep()
}

func parseServer(server string) (*url.URL, error) {
	parsed, err := url.Parse(server)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" {
		return nil, fmt.Errorf("server %q: expected https://HOST:PORT", server)
	}
	return parsed, nil
}

func hostPort(server *url.URL) string {
	return net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "443"))
}

// Learn keeps where the API servers are that live, so that the node finds one when
// others are gone, also after a start.
func (id *Identity) Learn(ctx context.Context, living []netip.AddrPort) {
	if len(living) == 0 {
		return
	}
	if err := id.servers.learn(ctx, living); err != nil {
		klog.FromContext(ctx).Error(err, "Could not keep where the servers are")
	}
}

// authority returns the CAs that the node trusts. The stored ones count; a token of another cluster is an error.
func (id *Identity) authority(ctx context.Context) ([]*x509.Certificate, error) {
	stored, err := id.store.readAuthorities(caFile)
	if err != nil {
		return nil, err
	}
	if id.cfg.Token == "" {
		if stored == nil {
			return nil, fmt.Errorf("this node has not joined a cluster yet (%s is empty): give it a join token", id.store.dir)
		}
		return stored, nil
	}
	token, err := ParseToken(id.cfg.Token)
	joined := stored != nil && id.store.has(clientFile)
	if err != nil && joined {
		klog.FromContext(ctx).Error(err, "The join token is not used: the node has joined before")
		return stored, nil
	}
	if err != nil {
		return nil, err
	}
	switch {
	case slices.ContainsFunc(stored, func(ca *x509.Certificate) bool { return pki.HashOf(ca) == token.CAHash }):
		return stored, nil
	case joined:
		return nil, fmt.Errorf(
			"%s belongs to another cluster than the join token, or the cluster's CA was replaced while this node was off: "+
				"remove ca.crt and client.pem there to join with the token",
			id.store.dir,
		)
	}
	data, err := fetchAuthority(ctx, id.server, token.CAHash, id.cfg.Patience, id.cfg.Clock)
	if err != nil {
		return nil, err
	}
	if err := id.store.write(caFile, data); err != nil {
		return nil, err
	}
	return id.store.readAuthorities(caFile)
}

// loadClient takes the stored client certificate, if there is one for this node.
func (id *Identity) loadClient() error {
	pair, err := id.store.readPair(clientFile)
	if err != nil || pair == nil {
		return err
	}
	if !isOf(pair, id.cfg.NodeName) || !signs(id.trusted.Load().cluster, pair) {
		return fmt.Errorf("%s is the certificate of %s, not of node %s in this cluster: remove it to join again",
			id.store.path(clientFile), pair.Leaf.Subject.CommonName, id.cfg.NodeName)
	}
	id.client.Store(pair)
	return nil
}

// loadServing takes the stored serving certificate if it still has this node's name, by which the API server calls it.
// One without the node's address is replaced.
func (id *Identity) loadServing() error {
	pair, err := id.store.readPair(servingFile)
	if err != nil {
		return err
	}
	if pair != nil && isOf(pair, id.cfg.NodeName) && valid(pair.Leaf, id.Now()) &&
		pair.Leaf.VerifyHostname(id.cfg.NodeName) == nil {
		id.serve(pair)
	}
	return nil
}

// Joined reports whether the node of a data folder has joined a cluster.
func Joined(dataDir string) bool { return store{dir: filepath.Join(dataDir, "pki")}.has(clientFile) }

// AddressChanged has the serving certificate be replaced if it is not for the node's addresses.
func (id *Identity) AddressChanged() { wake(id.wakeServing) }

// movedAway reports whether the node has an address for which its serving certificate is not, and none was asked for.
func (id *Identity) movedAway(cert *x509.Certificate) bool {
	if asked := id.asked.Load(); asked != nil && slices.EqualFunc(*asked, id.cfg.NodeIPs(), net.IP.Equal) {
		return false
	}
	return !id.covers(cert)
}

// covers reports whether a serving certificate is for the node's name and all its addresses.
func (id *Identity) covers(cert *x509.Certificate) bool {
	for _, ip := range id.cfg.NodeIPs() {
		if cert.VerifyHostname(ip.String()) != nil {
			return false
		}
	}
	return cert.VerifyHostname(id.cfg.NodeName) == nil
}

// bootstrap gets a client certificate with the join token.
func (id *Identity) bootstrap(ctx context.Context) error {
	if id.cfg.Token == "" {
		return errors.New("the node has no certificate: give it a join token, which \"everynode token create\" makes")
	}
	token, err := ParseToken(id.cfg.Token)
	if err != nil {
		return err
	}
	config := id.baseConfig()
	config.BearerToken = token.bearer()
	return explainRefusal(id.renewClient(ctx, config))
}

// rejoinPatience is how long a node with a certificate that cannot be used waits for a new one before it starts what
// needs none.
const rejoinPatience = 5 * time.Second

// rejoin tries for a moment to get a usable certificate instead of the stored one. Run goes on with it.
func (id *Identity) rejoin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, rejoinPatience)
	defer cancel()
	if err := id.refreshClient(ctx); err != nil {
		klog.FromContext(ctx).Error(
			err,
			"The node has no part in its cluster for now: what runs, runs on, and static pods start; joining is tried again "+
				"and again",
		)
	}
}

// refreshClient gets a new client certificate: with the present one, or, when that has ended, with the join token.
func (id *Identity) refreshClient(ctx context.Context) error {
	now, pair := id.Now(), id.client.Load()
	switch {
	case valid(pair.Leaf, now):
		err := id.renewClient(ctx, id.RESTConfig())
		if err == nil || !apierrors.IsUnauthorized(err) {
			return err
		}
		if id.cfg.Token == "" {
			return errors.New(
				"the cluster refuses the node's certificate: it was revoked, or its authority was replaced while the node was " +
					"off; " +
					"start the agent with a new join token, which \"everynode token create\" makes on the control plane",
			)
		}
		klog.FromContext(ctx).Info(
			"The cluster refuses the node's certificate; joining again with the join token", "node", id.cfg.NodeName,
		)
		return id.bootstrap(ctx)
	case id.cfg.Token == "":
		return fmt.Errorf(
			"the node's certificate ended at %s and this machine's clock says %s: if the clock is right, start the agent "+
				"with a join token, which \"everynode token create\" makes on the control plane",
			pair.Leaf.NotAfter.Format(time.RFC3339), now.Format(time.RFC3339),
		)
	}
	klog.FromContext(ctx).Info(
		"The node's certificate has ended; joining again with the join token",
		"node", id.cfg.NodeName, "ended", pair.Leaf.NotAfter,
	)
	if err := id.bootstrap(ctx); err != nil {
		return fmt.Errorf("the node's certificate ended at %s: %w", pair.Leaf.NotAfter.Format(time.RFC3339), err)
	}
	return nil
}

// renewClient gets a client certificate with the given credentials, stores and uses it.
func (id *Identity) renewClient(ctx context.Context, config *rest.Config) error {
	pair, err := id.request(ctx, config, wantedClient(id.cfg.NodeName), clientFile)
	if err != nil {
		return fmt.Errorf("get a client certificate for node %s: %w", id.cfg.NodeName, err)
	}
	id.client.Store(pair)
	id.reconnect()
	id.shown(ctx)
	id.refused.Store(false)
	klog.FromContext(ctx).Info("Got a client certificate", "node", id.cfg.NodeName, "expires", pair.Leaf.NotAfter)
	return nil
}

// errNotJoined means that the node's own certificate cannot be used.
var errNotJoined = errors.New("the node's client certificate cannot be used")

func (id *Identity) renewServing(ctx context.Context) error {
	if !valid(id.client.Load().Leaf, id.Now()) {
		return errNotJoined
	}
	ips := id.cfg.NodeIPs()
	pair, err := id.request(ctx, id.RESTConfig(), wantedServing(id.cfg.NodeName, ips), servingFile)
	var refused *refusedError
	if errors.As(err, &refused) && len(ips) > 0 {
		// The API server calls the node by its name. An address that it shares with the
		// control plane, or that another node reports, must not cut it off.
		klog.FromContext(ctx).Error(
			err, "No serving certificate for the node's address; asking for one with its name alone", "node", id.cfg.NodeName,
		)
		pair, err = id.request(ctx, id.RESTConfig(), wantedServing(id.cfg.NodeName, nil), servingFile)
	}
	if err != nil {
		return fmt.Errorf("get a serving certificate for node %s: %w", id.cfg.NodeName, err)
	}
	id.asked.Store(&ips)
	id.serve(pair)
	klog.FromContext(ctx).Info("Got a serving certificate", "node", id.cfg.NodeName, "expires", pair.Leaf.NotAfter)
	return nil
}

func (id *Identity) request(ctx context.Context, config *rest.Config, w wanted, name string) (*tls.Certificate, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, id.cfg.Patience)
	defer cancel()
	var identify func([]byte) (map[string]string, error)
	if name == clientFile {
		identify = id.identify
	}
	data, err := requestCertificate(ctx, client, w, id.cfg.Clock, identify)
	if err != nil {
		return nil, explainClock(err)
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, err
	}
	// Nodes' serving certificates are signed by an authority that only the server knows.
	if !isOf(&pair, id.cfg.NodeName) || (name == clientFile && !id.learnSigner(ctx, &pair)) {
		return nil, errors.New("the server's certificate is for somebody else or not signed by the cluster's CA")
	}
	return &pair, id.store.write(name, data)
}

// baseConfig reaches the server and trusts only the cluster's CA; it has no credentials.
func (id *Identity) baseConfig() *rest.Config {
	return &rest.Config{
		Host:            id.server.String(),
		TLSClientConfig: rest.TLSClientConfig{CAData: encode(id.trusted.Load().cluster)},
	}
}

// RESTConfig is how the node talks to the server. Clients made from it follow renewals of the certificate, and the
// replacement of authorities, by themselves.
func (id *Identity) RESTConfig() *rest.Config {
	return &rest.Config{Host: id.server.String(), Transport: id.transport}
}

// KubeconfigPath is a kubeconfig with the node's own rights.
func (id *Identity) KubeconfigPath() string { return id.store.path(kubeconfigFile) }

// servingPatience is how long a connection waits for the node's first serving certificate: less than those who connect
// wait for a handshake.
const servingPatience = 8 * time.Second

// ServingCertificate is for tls.Config.GetCertificate. Pods may run before Run has got the first certificate, so it
// waits for that a while, and fails then.
func (id *Identity) ServingCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(hello.Context(), servingPatience)
	defer cancel()
	return id.servingCertificate(ctx)
}

func (id *Identity) servingCertificate(ctx context.Context) (*tls.Certificate, error) {
	select {
	case <-id.served:
		return id.serving.Load(), nil
	case <-ctx.Done():
		return nil, errors.New("the node has no serving certificate yet")
	}
}

// serve uses a serving certificate from now on.
func (id *Identity) serve(pair *tls.Certificate) {
	id.serving.Store(pair)
	id.firstOnce.Do(func() { close(id.served) })
}

func (id *Identity) writeKubeconfig() error {
	const name = "everynode"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: id.server.String(), CertificateAuthority: id.store.path(caFile)}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificate: id.store.path(clientFile),
		ClientKey:         id.store.path(clientFile),
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return id.store.write(kubeconfigFile, data)
}
