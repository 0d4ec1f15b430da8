package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/election"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/membership"
	"github.com/everynode/everynode/internal/storage/members"
	"github.com/everynode/everynode/internal/testenv/freeport"
	"github.com/everynode/everynode/internal/version"
)

const severalPatience = 2 * time.Minute

// machine is a server of several in the test's process. Each has an address of its
// own, so that all can have one port, as servers must.
type machine struct {
	t       *testing.T
	options config.Options
	ip      string

	mu      sync.Mutex
	running *Server
	cancel  func()
	done    chan error
}

func newMachine(t *testing.T, number, port int) *machine {
	t.Helper()
	peer, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	ip := fmt.Sprintf("127.0.0.%d", number)
	o := config.Defaults()
	o.DataDir, o.NoFsync, o.Name = filepath.Join(t.TempDir(), "data"), true, fmt.Sprint("server-", number)
	o.Listen, o.PeerAddress = []string{fmt.Sprintf("%s:%d", ip, port)}, fmt.Sprintf("127.0.0.1:%d", peer)
	// Endpoints cannot be loopback addresses; nobody connects to this one.
	o.AdvertiseAddress = fmt.Sprintf("192.0.2.%d", number)
	m := &machine{t: t, options: o, ip: ip}
	t.Cleanup(func() { m.stop() })
	return m
}

// start runs it, and again when it wants to begin again, until stop.
func (m *machine) start() {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.done = cancel, make(chan error, 1)
	first := make(chan error, 1)
	go func() {
		m.done <- func() error {
			for {
				s, err := New(m.options)
				if err != nil {
					first <- err
					return err
				}
				m.mu.Lock()
				m.running = s
				m.mu.Unlock()
				go func() {
					<-s.Ready()
					select {
					case first <- nil:
					default:
					}
				}()
				if err = s.Run(ctx); !errors.Is(err, membership.ErrBeginAnew) {
					select {
					case first <- err:
					default:
					}
					return err
				}
			}
		}()
	}()
	select {
	case err := <-first:
		if err != nil {
			m.t.Fatalf("start %s: %v", m.options.Name, err)
		}
	case <-time.After(severalPatience):
		m.t.Fatalf("%s is not ready", m.options.Name)
	}
}

// stop ends it in order.
func (m *machine) stop() {
	if m.cancel == nil {
		return
	}
	m.cancel()
	if err := <-m.done; err != nil {
		m.t.Errorf("%s ended with: %v", m.options.Name, err)
	}
	m.cancel = nil
}

// now is the server that runs.
func (m *machine) now() *Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

func (m *machine) url() string { return "https://" + m.options.Listen[0] }

func (m *machine) join(at *machine, token string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), severalPatience)
	defer cancel()
	if err := membership.Join(ctx, m.options, at.url(), token); err != nil {
		m.t.Fatalf("%s joins: %v", m.options.Name, err)
	}
	m.start()
}

func (m *machine) config() *rest.Config {
	m.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(m.options.DataDir, "kubeconfig"))
	if err != nil {
		m.t.Fatal(err)
	}
	config.QPS, config.Timeout = -1, 20*time.Second
	return config
}

func (m *machine) client() kubernetes.Interface {
	m.t.Helper()
	client, err := kubernetes.NewForConfig(m.config())
	if err != nil {
		m.t.Fatal(err)
	}
	return client
}

// token makes one with which machines join: servers, or nodes only.
func (m *machine) token(forServers bool) string {
	m.t.Helper()
	newToken := authn.NewBootstrapToken
	if forServers {
		newToken = authn.NewServerToken
	}
	secret, token, err := newToken(time.Now(), time.Hour, "")
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := m.client().CoreV1().Secrets(secret.Namespace).Create(m.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		m.t.Fatal(err)
	}
	token.CAHash, err = pki.ReadCAHash(filepath.Join(m.options.DataDir, "pki"))
	if err != nil {
		m.t.Fatal(err)
	}
	return token.Text()
}

func (m *machine) list() members.List {
	s := m.now()
	select {
	case <-s.Ready():
		return s.servers.List(m.t.Context())
	default:
		return members.List{} // it begins again
	}
}

func (m *machine) eventually(what string, check func(ctx context.Context) error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), severalPatience)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			m.t.Fatalf("%s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func threeServers(t *testing.T) []*machine {
	t.Helper()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	all := []*machine{newMachine(t, 1, port), newMachine(t, 2, port), newMachine(t, 3, port)}
	all[0].start()
	all[1].join(all[0], all[0].token(true))
	all[2].join(all[1], all[0].token(true))
	return all
}

// write makes a ConfigMap through one server and reads it through all.
func written(t *testing.T, name string, by *machine, all ...*machine) {
	t.Helper()
	by.eventually("write through "+by.options.Name, func(ctx context.Context) error {
		_, err := by.client().CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	})
	for _, m := range all {
		// As fresh as promised: at once, by a list that the watch cache answers.
		list, err := m.client().CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		found := false
		for _, c := range list.Items {
			found = found || c.Name == name
		}
		if err != nil || !found {
			t.Errorf("%s does not list %s, which was written before: %v", m.options.Name, name, err)
		}
	}
}

// worker is the server whose control loops work.
func worker(t *testing.T, all ...*machine) *machine {
	t.Helper()
	var out *machine
	all[0].eventually("the control loops of a server work", func(ctx context.Context) error {
		lease, err := all[0].client().CoordinationV1().Leases(members.LoopsNamespace).Get(ctx, members.LoopsLease, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return fmt.Errorf("nobody's: %w", err)
		}
		for _, m := range all {
			if strings.HasPrefix(*lease.Spec.HolderIdentity, m.options.Name+"_") {
				out = m
				return nil
			}
		}
		return fmt.Errorf("those of %s do", *lease.Spec.HolderIdentity)
	})
	return out
}

func endpointsAre(t *testing.T, by *machine, want ...string) {
	t.Helper()
	by.eventually("the API's endpoints are "+strings.Join(want, " "), func(ctx context.Context) error {
		slice, err := by.client().DiscoveryV1().EndpointSlices("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := addressesOf(slice); got != strings.Join(want, " ") {
			return fmt.Errorf("they are %s", got)
		}
		return nil
	})
}

func addressesOf(slice *discoveryv1.EndpointSlice) string {
	var out []string
	for _, e := range slice.Endpoints {
		out = append(out, e.Addresses...)
	}
	return strings.Join(out, " ")
}

func TestThreeServers(t *testing.T) {
	t.Parallel()
	all := threeServers(t)
	written(t, "three", all[2], all...)
	endpointsAre(t, all[1], "192.0.2.1", "192.0.2.2", "192.0.2.3")
	if _, err := all[0].client().CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "v"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	for _, m := range all {
		if secret, err := m.client().CoreV1().Secrets("default").Get(t.Context(), "s", metav1.GetOptions{}); err != nil || string(secret.Data["k"]) != "v" {
			t.Errorf("%s reads of a stored Secret %v, %v", m.options.Name, secret, err)
		}
	}
	list := all[2].list()
	if len(list.Servers) != 3 || list.Servers[0].Name != "server-1" || list.Servers[2].Name != "server-3" {
		t.Errorf("the servers are %+v", list)
	}

	renewedByAll(t, all)
	turnsEnd(t, all[0], all[1])

	// One stops in order: another's loops work at once, its endpoint is gone at once,
	// and each write that was acknowledged is there.
	first := worker(t, all...)
	var rest []*machine
	for _, m := range all {
		if m != first {
			rest = append(rest, m)
		}
	}
	first.stop()
	start := time.Now()
	second := worker(t, rest...)
	if took := time.Since(start); took > election.Lasts/2 {
		t.Errorf("the loops worked again %v after a stop in order", took)
	}
	endpointsAre(t, second, "192.0.2."+rest[0].options.Name[7:], "192.0.2."+rest[1].options.Name[7:])
	written(t, "two", rest[0], rest...)
	rest[0].eventually("the loops work", func(ctx context.Context) error {
		_, err := rest[0].client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}}, metav1.CreateOptions{})
		if err != nil && !strings.Contains(err.Error(), "already exists") {
			return err
		}
		_, err = rest[0].client().CoreV1().ServiceAccounts("fresh").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	first.start()
	written(t, "again", first, all...)
	endpointsAre(t, first, "192.0.2.1", "192.0.2.2", "192.0.2.3")

	// One leaves; it does not start again with what it has.
	leaver := rest[0]
	leaver.mu.Lock()
	s := leaver.running
	leaver.mu.Unlock()
	if err := s.servers.Leave(t.Context(), first.options.Name); err == nil || !strings.Contains(err.Error(), "not "+first.options.Name) {
		t.Errorf("a server leaves when another is meant: %v", err)
	}
	first.eventually("a server leaves", func(ctx context.Context) error { return s.servers.Leave(ctx, leaver.options.Name) })
	leaver.stop()
	if _, err := New(leaver.options); err == nil || !strings.Contains(err.Error(), "has left its cluster") {
		t.Errorf("a server that has left starts: %v", err)
	}
	written(t, "without", rest[1], first, rest[1])
}

// Each of these is refused in one line, and nothing is written.
func TestRefusedToJoin(t *testing.T) {
	t.Parallel()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	first, other := newMachine(t, 1, port), newMachine(t, 4, port)
	first.start()
	other.start()
	good := first.token(true)
	wrong := good[:7] + "aaaaaaaaaaaaaaaa" + good[23:]
	own := newMachine(t, 5, port)
	own.start()
	own.stop()
	for _, test := range []struct {
		what, token, want string
		at, joiner        *machine
	}{
		{"a wrong token", wrong, "the token is wrong or has ended", first, newMachine(t, 6, port)},
		{"a node's token", first.token(false), "not one for servers", first, newMachine(t, 6, port)},
		{"no token", "", "the token is not of the form", first, newMachine(t, 6, port)},
		{"a token without a hash", good[:23], "lacks the fingerprint", first, newMachine(t, 6, port)},
		{"another cluster's token", other.token(true), "another cluster", first, newMachine(t, 6, port)},
		{"a cluster of its own", good, "holds the data of a cluster of its own", first, own},
		{"the name of another", good, "there is a server of the name server-1", first, newMachine(t, 1, port)},
	} {
		_, before := os.Stat(test.joiner.options.DataDir)
		err := membership.Join(t.Context(), test.joiner.options, test.at.url(), test.token)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", test.what, err, test.want)
		}
		if _, after := os.Stat(test.joiner.options.DataDir); errors.Is(before, os.ErrNotExist) && !errors.Is(after, os.ErrNotExist) {
			t.Errorf("%s: a data directory was made", test.what)
		}
	}
	portsTaken(t, first, good, newMachine(t, 6, port))
	secretsAreNoWayIn(t, first, good)
	refusedByHandler(t, first, good)
	if folder.Exists(filepath.Join(first.options.DataDir, membership.FileName)) || folder.Exists(folder.Peers(first.options.DataDir)) {
		t.Error("the first server has become one of several, and nobody has joined")
	}
}

// secretsAreNoWayIn has somebody make a token for servers, or read one, who may write and
// read Secrets only.
func secretsAreNoWayIn(t *testing.T, first *machine, token string) {
	t.Helper()
	roles := first.client().RbacV1()
	writer := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "writer"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: writer.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "writer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "writer"}}}
	_, err := roles.Roles("kube-system").Create(t.Context(), writer, metav1.CreateOptions{})
	if err == nil {
		_, err = roles.RoleBindings("kube-system").Create(t.Context(), binding, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	config := first.config()
	config.Impersonate.UserName = "writer"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	secret, _, err := authn.NewBootstrapToken(time.Now(), time.Hour, "")
	if err != nil {
		t.Fatal(err)
	}
	first.eventually("the writer writes", func(ctx context.Context) error {
		_, err := client.CoreV1().Secrets("kube-system").Create(ctx, secret, metav1.CreateOptions{})
		return err
	})
	forServers, _, err := authn.NewServerToken(time.Now(), time.Hour, "")
	if err != nil {
		t.Fatal(err)
	}
	secrets := client.CoreV1().Secrets("kube-system")
	_, err = secrets.Create(t.Context(), forServers, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "gives all keys of the cluster") {
		t.Errorf("who may write Secrets makes a token for servers: %v", err)
	}
	ofType := metav1.ListOptions{FieldSelector: "type=" + string(authn.BootstrapSecretType)}
	tokens, err := secrets.List(t.Context(), ofType)
	if err != nil || len(tokens.Items) < 2 {
		t.Fatalf("%d tokens can be read: %v", len(tokens.Items), err)
	}
	for _, s := range tokens.Items {
		for key, value := range s.Data {
			if authn.IsForServers(&s) && strings.Contains(string(value), token[7:23]) {
				t.Errorf("who may read Secrets reads the token for servers in %s", key)
			}
		}
	}
}

// A token for servers is good for the first that joins with it, however often that asks, and
// is gone when that one serves.
func TestServerTokenIsUsedOnce(t *testing.T) {
	t.Parallel()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	first, second, third := newMachine(t, 1, port), newMachine(t, 2, port), newMachine(t, 3, port)
	first.start()
	token := first.token(true)
	for range 2 { // The second time as after a crash before its database was there.
		if err := membership.Join(t.Context(), second.options, first.url(), token); err != nil {
			t.Fatal(err)
		}
	}
	err = membership.Join(t.Context(), third.options, first.url(), token)
	if err == nil || !strings.Contains(err.Error(), "a token is good for one server, and server-2 at https://") {
		t.Errorf("another server joins with the token: %v", err)
	}
	second.start()
	second.eventually("the token is gone", func(ctx context.Context) error {
		secrets := second.client().CoreV1().Secrets("kube-system")
		_, err := secrets.Get(ctx, authn.BootstrapSecretPrefix+token[:6], metav1.GetOptions{})
		m, unread := membership.Read(second.options.DataDir)
		if !apierrors.IsNotFound(err) || unread != nil || m.Token != "" {
			return fmt.Errorf("%v, %+v, %v", err, m, unread)
		}
		return nil
	})
}

// portsTaken has a server join when one of the two could not open its port for the other.
func portsTaken(t *testing.T, first *machine, token string, joiner *machine) {
	t.Helper()
	for _, m := range []*machine{first, joiner} {
		taken, err := net.Listen("tcp", m.options.PeerAddress)
		if err != nil {
			t.Fatal(err)
		}
		err = membership.Join(t.Context(), joiner.options, first.url(), token)
		if err == nil || !strings.Contains(err.Error(), "listen for the other servers on "+m.options.PeerAddress) || strings.Contains(err.Error(), "\n") {
			t.Errorf("the port of %s is taken: %v", m.options.Name, err)
		}
		taken.Close()
		if folder.Exists(joiner.options.DataDir) {
			t.Errorf("the port of %s is taken: a data directory was made", m.options.Name)
		}
	}
}

// refusedByHandler asks what Join would not ask.
func refusedByHandler(t *testing.T, first *machine, token string) {
	t.Helper()
	client, err := rest.HTTPClientFor(&rest.Config{Host: first.url(), BearerToken: token[:23], TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	post := func(body string) (int, string) {
		response, err := client.Post(first.url()+members.Path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	for _, test := range []struct{ body, want string }{
		{`{"Name":"x","Peer":"https://127.0.0.1:1","Version":"v1.0.0","Port":` + strconv.Itoa(first.options.Port()) + `}`, "is too new for this cluster, which has " + version.Kubernetes() + "; upgrade"},
		{`{"Name":"a/b","Peer":"https://127.0.0.1:1","Version":"v1.99.0"}`, "cannot be the name"},
		{`{"Name":"x","Peer":"http://127.0.0.1:1","Version":"` + version.Kubernetes() + `"}`, "not of the form"},
		{`{"Name":"x","Peer":"https://127.0.0.1:2380","Port":1,"Version":"` + version.Kubernetes() + `"}`, "serves the API at port 1"},
	} {
		if code, text := post(test.body); code != http.StatusConflict || !strings.Contains(text, test.want) || strings.Count(text, "\n") != 1 {
			t.Errorf("%s gets %d %q, want %q", test.body, code, text, test.want)
		}
	}
	response, err := client.Get(first.url() + members.Path)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("who has a token may list the servers: %s", response.Status)
	}
}
