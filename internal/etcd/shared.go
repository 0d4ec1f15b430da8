package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

const (
	// sharedKey tells by a hash which keys all servers are to have.
	sharedKey = "/everynode/keys"
	// sharedPath is where members give each other those keys.
	sharedPath = "/everynode/keys"
	// maxShared bounds them, in bytes.
	maxShared = 4 << 20
)

// Agreed tells which keys all servers are to have; empty if nobody has told. The revision
// is for Agree.
func (s *Server) Agreed(ctx context.Context) (hash string, revision int64, err error) {
	return agreed(ctx, s.watermarks, sharedKey)
}

// Agree tells which keys all servers are to have, unless somebody has since the revision.
func (s *Server) Agree(ctx context.Context, hash string, revision int64) (done bool, err error) {
	return agree(ctx, s.watermarks, sharedKey, hash, revision)
}

// AskShared gets the keys of the other members, one after another, until take takes them.
func (s *Server) AskShared(ctx context.Context, take func(content []byte) (taken bool, err error)) error {
	errs := []error{errors.New("no server that answers has them")}
	for _, m := range s.Members() {
		if m.ID == s.Self() || m.URL == "" {
			continue
		}
		content, err := askPeer(ctx, s.peers.Keys, m.URL+sharedPath, maxShared)
		if err == nil {
			var taken bool
			if taken, err = take(content); taken || err != nil {
				return err
			}
			continue
		}
		errs = append(errs, fmt.Errorf("ask %s: %w", m.Name, err))
	}
	return errors.Join(errs...)
}

// tellShared gives a member the keys. Who is none does not get as far as here.
func (s *Server) tellShared(w http.ResponseWriter, _ *http.Request) {
	if s.peers.Shared == nil {
		http.NotFound(w, nil)
		return
	}
	content, err := s.peers.Shared()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(content) // who asked has gone if this fails
}
