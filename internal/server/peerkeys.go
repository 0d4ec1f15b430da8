package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/etcd"
	"github.com/everynode/everynode/internal/members"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/folder"
)

// peerKeys is the authority of the databases among each other. Its key is given to members only
// who answer at their address: a server that was removed has a certificate of the authority that
// is being replaced.
func (s *Server) peerKeys() follows {
	dir := folder.Peers(s.options.DataDir)
	return follows{
		which: etcd.PeerKeys, export: func() ([]byte, error) { return exportPeers(s.options.DataDir) },
		hash: func(content []byte) string {
			sum := sha256.Sum256(content) // names are in order
			return hex.EncodeToString(sum[:])
		},
		check: func(content []byte) error {
			files, err := readPeers(content)
			if err == nil {
				err = pki.CheckPeers(files)
			}
			return err
		},
		adopt: func(content []byte) error {
			files, err := readPeers(content)
			if err == nil {
				err = pki.AdoptPeers(dir, hostOf(s.membership.URL), files, clock.RealClock{})
			}
			return err
		},
		memory:       func(m *membership) (agreed, begun *string) { return &m.AgreedPeers, &m.BegunPeers },
		replacedHere: "The authority of the servers' databases was replaced on this server; the others take it",
		took:         "Took the authority of the servers' databases that was replaced on another server",
		byHand: fmt.Sprintf("the authority of the servers' databases was replaced on two servers at once: copy peers/%s* to %s from the server whose authority is to count",
			pki.PeerAuthority, s.options.DataDir),
	}
}

func readPeers(content []byte) (files map[string][]byte, err error) {
	if err = json.Unmarshal(content, &files); err != nil {
		return nil, fmt.Errorf("read the authority of the servers' databases: %w", err)
	}
	return files, nil
}

func exportPeers(dataDir string) ([]byte, error) {
	files, err := pki.ExportPeers(folder.Peers(dataDir))
	if err != nil {
		return nil, err
	}
	if !pki.PeersWhole(files) {
		return nil, errHalf
	}
	if err := pki.CheckPeers(files); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return json.Marshal(files)
}

// followPeers has this server have the authority that all have, a certificate of the one that
// signs, and no trust in one that has ended, until ctx ends.
func (s *Server) followPeers(ctx context.Context) error {
	return s.follow(ctx, func(ctx context.Context) error {
		if err := s.followOnce(ctx, s.peerKeys()); err != nil {
			return err
		}
		if err := pki.FollowPeers(folder.Peers(s.options.DataDir), hostOf(s.membership.URL), clock.RealClock{}); err != nil {
			return err
		}
		return s.endOldTrust(ctx)
	})
}

// endOldTrust has this server begin anew when it is its turn, if its database takes an authority
// that is trusted no more: connections that are open are not looked at again, and the database
// reads whom it may connect to when it starts.
func (s *Server) endOldTrust(ctx context.Context) error {
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
	klog.FromContext(ctx).Info("The authority of the servers' databases was replaced; this server begins anew, so that it does not take the old one any more")
	s.again.Do(func() { close(s.beginAnew) })
	return nil
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
