package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/datadir"
	"github.com/everynode/everynode/internal/encryption"
	"github.com/everynode/everynode/internal/etcd"
	"github.com/everynode/everynode/internal/etcd/hashcheck"
	"github.com/everynode/everynode/internal/members"
	"github.com/everynode/everynode/internal/members/jointoken"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/sharedkeys"
	"github.com/everynode/everynode/internal/version"
)

// admission answers for the API who the servers are, and changes it.
type admission struct{ *Server }

// passing is an error that passes by itself.
type passing struct{ error }

// Passes implements what the API asks such errors.
func (passing) Passes() bool { return true }

// Unwrap implements errors.Is.
func (p passing) Unwrap() error { return p.error }

func mayPass(err error) error {
	if errors.Is(err, etcd.ErrNotNow) {
		return passing{err}
	}
	return err
}

// Admit implements apiserver.Members. Everything is checked before anything changes.
func (a admission) Admit(ctx context.Context, j members.Joining, token string) (members.Welcome, error) {
	a.changing.Lock()
	defer a.changing.Unlock()
	if err := a.checkJoining(j); err != nil {
		return members.Welcome{}, err
	}
	if a.membership == nil {
		if err := a.becomeSeveral(); err != nil {
			return members.Welcome{}, err
		}
		return members.Welcome{}, passing{ErrBeginAnew}
	}
	if j.Check {
		return members.Welcome{Known: a.known(), Data: datadir.Version}, nil
	}
	// With keys that are not all there, or damaged, the new server would not start.
	if _, err := sharedkeys.Export(a.options.DataDir); err != nil {
		return members.Welcome{}, fmt.Errorf("the server that was asked has no keys to give: %w", err)
	}
	if err := a.useToken(ctx, token, j); err != nil {
		return members.Welcome{}, err
	}
	added, err := a.etcd.AddLearner(ctx, j.Peer)
	if err != nil {
		return members.Welcome{}, mayPass(err)
	}
	klog.FromContext(ctx).Info("A server joins", "name", j.Name, "id", added.ID, "address", added.URL)
	welcome := members.Welcome{Known: a.known(), Data: datadir.Version, Settings: a.membership.Settings}
	welcome.Keys, err = pki.ExportShared(filepath.Join(a.options.DataDir, "pki"), folder.Peers(a.options.DataDir))
	if err != nil {
		return members.Welcome{}, err
	}
	welcome.StoredKeys, err = encryption.Read(encryption.File(a.options.DataDir))
	if err != nil {
		return members.Welcome{}, err
	}
	if file := a.settings.Etcd.EncryptionProviderConfigFilepath; file != "" {
		welcome.Encryption, err = os.ReadFile(file)
		if err != nil {
			return members.Welcome{}, fmt.Errorf("read how the cluster encrypts what is stored: %w", err)
		}
	}
	return welcome, nil
}

func (a admission) checkJoining(j members.Joining) error {
	if err := j.Validate(); err != nil {
		return err
	}
	if err := members.CheckVersion(j.Version, a.options.Version()); err != nil {
		return err
	}
	if err := members.CheckData(j.Data, datadir.Version); err != nil {
		return err
	}
	theirs, err := peerURL(strings.TrimPrefix(j.Peer, "https://"), "")
	if err != nil || theirs != j.Peer {
		return fmt.Errorf("the address %q for the other servers is not of the form https://HOST:PORT", j.Peer)
	}
	if j.Name == a.name() {
		return fmt.Errorf("there is a server of the name %s; give another with --server-name", j.Name)
	}
	for _, k := range a.known() {
		if k.Name == j.Name {
			return fmt.Errorf("there is a server of the name %s already; give another with --server-name, or, if that one is lost, run \"everynode members remove %s\" first", j.Name, j.Name)
		}
	}
	ours, err := a.peerURL()
	if err != nil {
		return err
	}
	if here, there := net.ParseIP(hostOf(ours)), net.ParseIP(hostOf(theirs)); here.IsLoopback() && !there.IsLoopback() {
		return fmt.Errorf("the server that was asked listens at %s only, where no other machine reaches it; start it with --listen IP:6443", here)
	}
	if ip, port := a.advertise(); j.Port != port && !ip.IsLoopback() {
		return fmt.Errorf("it serves the API at port %d, and the others do at %d; give --listen that port, since all servers of a cluster have one", j.Port, port)
	}
	return nil
}

// peerURL is where others reach this server's database, or will once it is not alone.
func (s *Server) peerURL() (string, error) {
	if s.membership != nil {
		return s.membership.URL, nil
	}
	ip, _ := s.advertise()
	return peerURL(s.options.PeerAddress, ip.String())
}

// becomeSeveral writes down that this server will be one of several, and has it begin anew.
func (s *Server) becomeSeveral() error {
	address, err := s.peerURL()
	if err != nil {
		return err
	}
	m := &membership{Name: serverName(s.options.Name), URL: address, Settings: members.Settings{
		ServiceCIDR: s.options.ServiceCIDR, ClusterCIDR: s.pods.Cluster.String(), NodeMaskSize: s.pods.NodeBits,
		Prefix: s.settings.Etcd.StorageConfig.Prefix,
	}}
	if err := (members.Joining{Name: m.Name}).Validate(); err != nil {
		return err
	}
	// What it cannot do would end it when it begins anew, and with it the API.
	if err := canListen(address); err != nil {
		return fmt.Errorf("the server that was asked cannot become one of several: %w", err)
	}
	if _, err := pki.OpenPeers(folder.Peers(s.options.DataDir), hostOf(address), clock.RealClock{}); err != nil {
		return err
	}
	if err := m.write(s.options.DataDir); err != nil {
		return err
	}
	s.again.Do(func() { close(s.beginAnew) })
	return nil
}

func (s *Server) known() (out []members.Known) {
	for _, m := range s.etcd.Members() {
		out = append(out, members.Known{ID: m.ID, Name: m.Name, URL: m.URL})
	}
	return out
}

// List implements apiserver.Members.
func (a admission) List(ctx context.Context) members.List {
	working := a.loopsOf(ctx)
	out := members.List{Asked: a.name()}
	if a.membership == nil {
		status := a.etcd.Status()
		out.Servers = []members.Server{{ID: status.ID, Name: a.name(), Version: version.Kubernetes(), Leads: true, Applied: status.Applied, Bytes: status.Bytes, Loops: true}}
		return out
	}
	answers := a.etcd.Ask(ctx)
	verdicts := etcd.Compare(answers)
	for _, answer := range answers {
		server := seen(answer)
		switch verdicts[answer.ID].State {
		case hashcheck.Odd:
			server.Differs = members.Corrupt
		case hashcheck.Disputed:
			server.Differs = members.Disputed
		}
		server.Loops = answer.Err == nil && server.Name == working
		out.Servers = append(out.Servers, server)
	}
	slices.SortFunc(out.Servers, func(a, b members.Server) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// loopsOf is the name of the server whose control loops work, empty if that is not known.
func (s *Server) loopsOf(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, err := kubernetes.NewForConfig(s.api.LoopbackConfig())
	if err != nil {
		return ""
	}
	lease, err := client.CoordinationV1().Leases(loopsNamespace).Get(ctx, loopsLease, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return name
}

// useToken keeps the token for the server that joins with it. An administrator has none.
func (s *Server) useToken(ctx context.Context, id string, j members.Joining) error {
	if id == "" {
		return nil
	}
	client, err := kubernetes.NewForConfig(s.api.LoopbackConfig())
	if err != nil {
		return fmt.Errorf("make the client for join tokens: %w", err)
	}
	err = jointoken.Use(ctx, client, id, j.Name+" at "+j.Peer)
	if apierrors.IsConflict(err) {
		return passing{err}
	}
	return err
}

// Remove implements apiserver.Members. The server has a name, or, if it has never
// started, an ID.
func (a admission) Remove(ctx context.Context, name string) error {
	a.changing.Lock()
	defer a.changing.Unlock()
	all := a.known()
	at := slices.IndexFunc(all, func(k members.Known) bool { return k.Name == name || k.ID == name })
	if at < 0 || a.membership == nil {
		return fmt.Errorf("there is no server of the name %s; \"everynode members\" lists them", name)
	}
	if all[at].ID == a.etcd.Self() {
		return errors.New("this is the server that was asked; run \"everynode server leave\" on it, or ask another")
	}
	return a.remove(ctx, all[at])
}

func (s *Server) remove(ctx context.Context, k members.Known) error {
	if err := s.etcd.Remove(ctx, k.ID); err != nil {
		return mayPass(err)
	}
	klog.FromContext(ctx).Info("A server was removed", "name", k.Name, "id", k.ID)
	if k.Name != "" {
		s.forgetPresence(ctx, k.Name)
	}
	return nil
}

// Leave implements apiserver.Members. The server ends when the others know.
func (a admission) Leave(ctx context.Context, name string) error {
	a.changing.Lock()
	defer a.changing.Unlock()
	if name != "" && name != a.name() {
		return fmt.Errorf("the server that answered is %s, not %s: something in front of them leads to another one; run \"everynode members remove %[2]s\" instead, and stop that one", a.name(), name)
	}
	all := a.known()
	if a.membership == nil || len(all) < 2 {
		return errors.New("this is the only server; stop it instead")
	}
	left := *a.membership
	left.Left = true
	a.leaving.Store(true)
	if err := a.remove(ctx, members.Known{ID: a.etcd.Self(), Name: a.name()}); err != nil {
		a.leaving.Store(false)
		return err
	}
	return left.write(a.options.DataDir)
}

// seen is a server as it answers.
func seen(answer etcd.Answer) members.Server {
	out := members.Server{ID: answer.ID, Name: answer.Name, URL: answer.URL, Learner: answer.Learner}
	if answer.Err != nil {
		out.Problem = "does not answer"
		return out
	}
	s := answer.Status
	out.Version, out.Leads, out.Applied, out.Bytes, out.Serving, out.PeerStanding = s.Version, s.Leads, s.Applied, s.Bytes, s.Serving, s.PeerStanding
	return out
}
