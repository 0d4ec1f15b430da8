package membership

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

	"github.com/everynode/everynode/internal/files/datadir"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/sharedkeys"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/internal/storage/etcd/hashcheck"
	"github.com/everynode/everynode/internal/storage/members"
	"github.com/everynode/everynode/internal/storage/members/jointoken"
	"github.com/everynode/everynode/internal/version"
)

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
func (s *Servers) Admit(ctx context.Context, j members.Joining, token string) (members.Welcome, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if err := s.checkJoining(j); err != nil {
		return members.Welcome{}, err
	}
	if s.file == nil {
		if err := s.becomeSeveral(); err != nil {
			return members.Welcome{}, err
		}
		return members.Welcome{}, passing{ErrBeginAnew}
	}
	if j.Check {
		return members.Welcome{Known: s.known(), Data: datadir.Version}, nil
	}
	// With keys that are not all there, or damaged, the new server would not start.
	if _, err := sharedkeys.Export(s.options.DataDir); err != nil {
		return members.Welcome{}, fmt.Errorf("the server that was asked has no keys to give: %w", err)
	}
	if err := s.useToken(ctx, token, j); err != nil {
		return members.Welcome{}, err
	}
	added, err := s.etcd.AddLearner(ctx, j.Peer)
	if err != nil {
		return members.Welcome{}, mayPass(err)
	}
	klog.FromContext(ctx).Info("A server joins", "name", j.Name, "id", added.ID, "address", added.URL)
	welcome := members.Welcome{Known: s.known(), Data: datadir.Version, Settings: s.file.Settings}
	welcome.Keys, err = pki.ExportShared(filepath.Join(s.options.DataDir, "pki"), folder.Peers(s.options.DataDir))
	if err != nil {
		return members.Welcome{}, err
	}
	welcome.StoredKeys, err = encryption.Read(encryption.File(s.options.DataDir))
	if err != nil {
		return members.Welcome{}, err
	}
	if file := s.settings.Etcd.EncryptionProviderConfigFilepath; file != "" {
		welcome.Encryption, err = os.ReadFile(file)
		if err != nil {
			return members.Welcome{}, fmt.Errorf("read how the cluster encrypts what is stored: %w", err)
		}
	}
	return welcome, nil
}

func (s *Servers) checkJoining(j members.Joining) error {
	if err := j.Validate(); err != nil {
		return err
	}
	if err := members.CheckVersion(j.Version, s.options.Version()); err != nil {
		return err
	}
	if err := members.CheckData(j.Data, datadir.Version); err != nil {
		return err
	}
	theirs, err := peerURL(strings.TrimPrefix(j.Peer, "https://"), "")
	if err != nil || theirs != j.Peer {
		return fmt.Errorf("the address %q for the other servers is not of the form https://HOST:PORT", j.Peer)
	}
	if j.Name == s.Name() {
		return fmt.Errorf("there is a server of the name %s; give another with --server-name", j.Name)
	}
	for _, k := range s.known() {
		if k.Name == j.Name {
			return fmt.Errorf(
				"there is a server of the name %s already; give another with --server-name, or, if that one is lost, run "+
					"\"everynode members remove %s\" first",
				j.Name, j.Name,
			)
		}
	}
	ours, err := s.peerURL()
	if err != nil {
		return err
	}
	if here, there := net.ParseIP(HostOf(ours)), net.ParseIP(HostOf(theirs)); here.IsLoopback() && !there.IsLoopback() {
		return fmt.Errorf(
			"the server that was asked listens at %s only, where no other machine reaches it; start it with --listen IP:6443",
			here,
		)
	}
	if ip, port := s.advertise(); j.Port != port && !ip.IsLoopback() {
		return fmt.Errorf(
			"it serves the API at port %d, and the others do at %d; give --listen that port, since all servers of a cluster "+
				"have one",
			j.Port, port,
		)
	}
	return nil
}

// becomeSeveral writes down that this server will be one of several, and has it begin again.
func (s *Servers) becomeSeveral() error {
	address, err := s.peerURL()
	if err != nil {
		return err
	}
	m := &File{Name: ServerName(s.options.Name), URL: address, Settings: members.Settings{
		ServiceCIDR: s.options.ServiceCIDR, ClusterCIDR: s.pods.Cluster.String(), NodeMaskSize: s.pods.NodeBits,
		Prefix: s.settings.Etcd.StorageConfig.Prefix,
	}}
	if err := (members.Joining{Name: m.Name}).Validate(); err != nil {
		return err
	}
	// What it cannot do would end it when it begins again, and with it the API.
	if err := canListen(address); err != nil {
		return fmt.Errorf("the server that was asked cannot become one of several: %w", err)
	}
	if _, err := pki.OpenPeers(folder.Peers(s.options.DataDir), HostOf(address), clock.RealClock{}); err != nil {
		return err
	}
	if err := m.Write(s.options.DataDir); err != nil {
		return err
	}
	s.again.Do(func() { close(s.beginAnew) })
	return nil
}

func (s *Servers) known() (out []members.Known) {
	for _, m := range s.etcd.Members() {
		out = append(out, members.Known{ID: m.ID, Name: m.Name, URL: m.URL})
	}
	return out
}

// List implements apiserver.Members.
func (s *Servers) List(ctx context.Context) members.List {
	working, ways := s.loopsOf(ctx), s.waysOf(ctx)
	out := members.List{Asked: s.Name()}
	if s.file == nil {
		status := s.etcd.Status()
		out.Servers = []members.Server{
			{
				ID:      status.ID,
				Name:    s.Name(),
				Version: version.Kubernetes(),
				Leads:   true,
				Applied: status.Applied,
				Bytes:   status.Bytes,
				Loops:   true,
			},
		}
		return out
	}
	answers := s.etcd.Ask(ctx)
	verdicts := etcd.Compare(answers)
	for _, answer := range answers {
		server := seen(answer)
		switch verdicts[answer.ID].State {
		case hashcheck.Odd:
			server.Differs = members.Corrupt
		case hashcheck.Disputed:
			server.Differs = members.Disputed
		}
		server.Loops, server.GivesWay = answer.Err == nil && server.Name == working, ways[server.Name]
		out.Servers = append(out.Servers, server)
	}
	slices.SortFunc(out.Servers, func(a, b members.Server) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// waysOf is why servers give way to others, by their names, as far as that is known.
func (s *Servers) waysOf(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, err := kubernetes.NewForConfig(s.api())
	if err != nil {
		return nil
	}
	list, err := client.CoordinationV1().Leases(members.LoopsNamespace).List(ctx,
		metav1.ListOptions{LabelSelector: presenceLabel + "=" + presenceKind})
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for i := range list.Items {
		l := &list.Items[i]
		out[strings.TrimPrefix(l.Name, presencePrefix)] = l.Annotations[presenceGivesWay]
	}
	return out
}

// loopsOf is the name of the server whose control loops work, empty if that is not known.
func (s *Servers) loopsOf(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, err := kubernetes.NewForConfig(s.api())
	if err != nil {
		return ""
	}
	lease, err := client.CoordinationV1().Leases(members.LoopsNamespace).Get(ctx, members.LoopsLease, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return name
}

// useToken keeps the token for the server that joins with it. An administrator has none.
func (s *Servers) useToken(ctx context.Context, id string, j members.Joining) error {
	if id == "" {
		return nil
	}
	client, err := kubernetes.NewForConfig(s.api())
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
func (s *Servers) Remove(ctx context.Context, name string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	all := s.known()
	at := slices.IndexFunc(all, func(k members.Known) bool { return k.Name == name || k.ID == name })
	if at < 0 || s.file == nil {
		return fmt.Errorf("there is no server of the name %s; \"everynode members\" lists them", name)
	}
	if all[at].ID == s.etcd.Self() {
		return errors.New("this is the server that was asked; run \"everynode server leave\" on it, or ask another")
	}
	return s.remove(ctx, all[at])
}

func (s *Servers) remove(ctx context.Context, k members.Known) error {
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
func (s *Servers) Leave(ctx context.Context, name string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if name != "" && name != s.Name() {
		return fmt.Errorf(
			"the server that answered is %s, not %s: something in front of them leads to another one; run \"everynode members "+
				"remove %[2]s\" instead, and stop that one",
			s.Name(), name,
		)
	}
	all := s.known()
	if s.file == nil || len(all) < 2 {
		return errors.New("this is the only server; stop it instead")
	}
	left := *s.file
	left.Left = true
	s.leaving.Store(true)
	if err := s.remove(ctx, members.Known{ID: s.etcd.Self(), Name: s.Name()}); err != nil {
		s.leaving.Store(false)
		return err
	}
	return left.Write(s.options.DataDir)
}

// seen is a server as it answers.
func seen(answer etcd.Answer) members.Server {
	out := members.Server{ID: answer.ID, Name: answer.Name, URL: answer.URL, Learner: answer.Learner}
	if answer.Err != nil {
		out.Problem = "does not answer"
		return out
	}
	s := answer.Status
	out.Version, out.Serving, out.PeerStanding = s.Version, s.Serving, s.PeerStanding
	out.Leads, out.Applied, out.Bytes = s.Leads, s.Applied, s.Bytes
	return out
}
