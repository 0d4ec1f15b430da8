package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/storage/etcd/kv"
)

// Shared is a set of files that all servers have alike. It names the key in the database that
// tells by a hash which they are to be, and the path at which members give them to each other.
type Shared string

const (
	// ClusterKeys are those of the cluster.
	ClusterKeys Shared = "/everynode/keys"
	// PeerKeys are those of the databases among each other.
	PeerKeys Shared = "/everynode/peer-keys"
)

const (
	// maxShared bounds them, in bytes.
	maxShared = 4 << 20
	// callBack is how long a member may take to show who it is. It is less than those who ask wait.
	callBack = 2 * time.Second
)

// Agreed tells which files all servers are to have; empty if nobody has told. The revision
// is for Agree.
func (s *Server) Agreed(ctx context.Context, which Shared) (hash string, revision int64, err error) {
	return kv.Agreed(ctx, s.watermarks, string(which))
}

// Agree tells which files all servers are to have, unless somebody has since the revision.
func (s *Server) Agree(ctx context.Context, which Shared, hash string, revision int64) (done bool, err error) {
	return kv.Agree(ctx, s.watermarks, string(which), hash, revision)
}

// ErrNobodyHas says that every other member has answered, and that none has the files.
var ErrNobodyHas = errors.New("no other server has them")

// AskShared gets the files of the other members, one after another, until take takes them.
func (s *Server) AskShared(ctx context.Context, which Shared, take func(content []byte) (taken bool, err error)) error {
	var errs []error
	for _, m := range s.Members() {
		if m.ID == s.Self() || m.URL == "" {
			continue
		}
		content, err := askPeer(ctx, s.peers.Keys, m.URL+string(which), maxShared)
		if err == nil {
			var taken bool
			if taken, err = take(content); taken || err != nil {
				return err
			}
			continue
		}
		errs = append(errs, fmt.Errorf("ask %s: %w", m.Name, err))
	}
	if len(errs) == 0 {
		return ErrNobodyHas
	}
	return fmt.Errorf("no server that answers has them: %w", errors.Join(errs...))
}

// tellShared gives a member the files. Who shows no certificate of members' authority does not
// get as far as here. Who is a member no more has such a certificate, and the key of that
// authority, but does not answer at the address of one.
func (s *Server) tellShared(which Shared) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.peers.Shared == nil {
			http.NotFound(w, nil)
			return
		}
		if !s.isMember(r.Context(), r.TLS) {
			http.Error(
				w,
				"the keys are given to those only who answer at the address of a server, with the certificate that they show",
				http.StatusForbidden,
			)
			return
		}
		content, err := s.peers.Shared(which)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(content) // who asked has gone if this fails
	}
}

// isMember reports whether the key that somebody has shown is that of a member: one that answers
// at its address shows the same.
func (s *Server) isMember(ctx context.Context, shown *tls.ConnectionState) bool {
	secured, err := s.peers.Keys.ClientTLS()
	if err != nil || shown == nil || len(shown.PeerCertificates) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, callBack)
	defer cancel()
	answers, asked := make(chan bool), 0
	for _, m := range s.Members() {
		if m.ID == s.Self() || m.URL == "" {
			continue
		}
		asked++
		go func() {
			there := keyAt(ctx, secured, m.URL)
			select {
			case answers <- there != nil && bytes.Equal(there, shown.PeerCertificates[0].RawSubjectPublicKeyInfo):
			case <-ctx.Done():
			}
		}()
	}
	for range asked {
		select {
		case same := <-answers:
			if same {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// keyAt is the public key of who answers at a member's address; nil if nobody does.
func keyAt(ctx context.Context, secured *tls.Config, address string) []byte {
	conn, err := (&tls.Dialer{Config: secured}).DialContext(ctx, "tcp", strings.TrimPrefix(address, "https://"))
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }() // nothing was said
	state, ok := conn.(*tls.Conn)
	if !ok || len(state.ConnectionState().PeerCertificates) == 0 {
		return nil
	}
	return state.ConnectionState().PeerCertificates[0].RawSubjectPublicKeyInfo
}
