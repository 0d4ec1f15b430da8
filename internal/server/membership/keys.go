package membership

import (
	"context"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/sharedkeys"
	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/internal/storage/members"
)

// ClusterKeys has this server have the keys of the cluster that all have.
func (s *Servers) ClusterKeys() *sharedkeys.Follower {
	return s.follower(sharedkeys.Cluster(s.options.DataDir, s.reload))
}

// PeerKeys has it have the authority by which all databases know each other.
func (s *Servers) PeerKeys() *sharedkeys.Follower {
	return s.follower(sharedkeys.Peers(s.options.DataDir, HostOf(s.file.URL)))
}

func (s *Servers) follower(f sharedkeys.Files) *sharedkeys.Follower {
	return sharedkeys.NewFollower(f, s.etcd, memory{s}, clock.RealClock{})
}

// FollowKeys has this server have the keys that all have, until ctx ends.
func (s *Servers) FollowKeys(ctx context.Context) error {
	return sharedkeys.Follow(ctx, s.ClusterKeys().Look)
}

// FollowPeers has this server have the authority that all have, a certificate of the one that
// signs, and no trust in one that has ended, until ctx ends.
func (s *Servers) FollowPeers(ctx context.Context) error {
	return sharedkeys.Follow(ctx, s.PeerKeys().Look, func(context.Context) error {
		return pki.FollowPeers(folder.Peers(s.options.DataDir), HostOf(s.file.URL), clock.RealClock{})
	}, s.endOldTrust)
}

// endOldTrust has this server begin again when it is its turn, if its database takes an authority
// that is trusted no more: connections that are open are not looked at again, and the database
// reads whom it may connect to when it starts.
func (s *Servers) endOldTrust(ctx context.Context) error {
	standing := s.etcd.Status()
	if !standing.Outdated {
		return nil
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	b := members.Beginning{Self: standing.ID}
	for _, answer := range s.etcd.Ask(ctx) {
		b.All = append(b.All, seen(answer))
	}
	if !b.Now() {
		return nil
	}
	klog.FromContext(ctx).Info(
		"The authority of the servers' databases was replaced; this server begins again, so that it does not take the old " +
			"one any more",
	)
	s.again.Do(func() { close(s.beginAnew) })
	return nil
}

// memory is what a server remembers of the files that it shares.
type memory struct{ *Servers }

// Lock implements sharedkeys.Memory.
func (m memory) Lock() { m.changing.Lock() }

// Unlock implements sharedkeys.Memory.
func (m memory) Unlock() { m.changing.Unlock() }

func (m memory) at(which etcd.Shared) (agreed, begun *string) {
	if which == etcd.PeerKeys {
		return &m.file.AgreedPeers, &m.file.BegunPeers
	}
	return &m.file.AgreedKeys, &m.file.BegunKeys
}

// Shared implements sharedkeys.Memory.
func (m memory) Shared(which etcd.Shared) (agreed, begun string) {
	a, b := m.at(which)
	return *a, *b
}

// NoteShared implements sharedkeys.Memory.
func (m memory) NoteShared(which etcd.Shared, agreed, begun string) error {
	if m.leaving.Load() {
		return nil
	}
	a, b := m.at(which)
	*a, *b = agreed, begun
	next := *m.file
	next.Known = m.known()
	return next.Write(m.options.DataDir)
}

// KeepCertificate renews the certificate by which the other servers know this one, until ctx ends.
func (s *Servers) KeepCertificate(ctx context.Context) error {
	pki.KeepPeers(ctx, folder.Peers(s.options.DataDir), HostOf(s.file.URL), clock.RealClock{})
	return nil
}
