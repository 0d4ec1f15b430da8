package etcd

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/storage/etcd/hashcheck"
	"github.com/everynode/everynode/internal/storage/etcd/offline"
	"github.com/everynode/everynode/internal/storage/etcd/roster"
)

// Peers says how the database is one of several that agree.
type Peers struct {
	// Name is what this member is called; URL is where the others reach it, and Listen
	// the host:port that is opened for that.
	Name, URL, Listen string
	// Keys are for connections between members, and for nothing else.
	Keys Keys
	// Known are all members when this one starts for the first time, itself among
	// them; later the others, as far as they are known.
	Known []roster.Member
	// Shared are files that all servers have, for a member that asks.
	Shared func(Shared) ([]byte, error)
	// Version is this program's, for the others to see.
	Version string
}

// Keys are a member's, among members.
type Keys interface {
	// Files are the paths of what is trusted, the certificate and its key.
	Files() (ca, cert, key string)
	// ServerTLS takes connections from members only.
	ServerTLS() *tls.Config
	// ClientTLS is for connections to members.
	ClientTLS() (*tls.Config, error)
	// Standing tells how this member stands with the authority of all.
	Standing() (pki.PeerStanding, error)
}

// Paths that members serve each other besides etcd's own.
const (
	statusPath    = "/everynode/status"
	watermarkPath = "/everynode/watermark/"
)

const (
	// maxAnswer bounds what another member says, in bytes.
	maxAnswer = 64 << 10
	// watermarkInterval is how often.
	watermarkInterval = 5 * time.Second
	// peerPatience is how long a question to another member may take.
	peerPatience = 3 * time.Second
	// peerHandshake is how long somebody may take who connects, until it has shown that
	// it is a member and said what it wants.
	peerHandshake = 10 * time.Second
)

// Status is how a member is.
type Status struct {
	roster.Member
	// Leads tells that a majority follows it. Leader is who it follows, if anybody.
	Leads  bool
	Leader string
	// Applied is the number of the last change that its database has, Term that of the
	// election it is in.
	Applied, Term uint64
	// Bytes is the size of its database's file.
	Bytes int64
	// Defragmenting tells that it rewrites that file, or is about to.
	Defragmenting bool
	// Hashes are of its database at the last compactions.
	Hashes []hashcheck.Hash
	// Version is its program's.
	Version string
	// Serving tells that its server serves the API.
	Serving bool
	// PeerStanding is how it stands with the authority of the databases; that of a member of
	// before there was such a question is empty.
	pki.PeerStanding
}

// Serve has this member say that its server serves the API.
func (s *Server) Serve() { s.serving.Store(true) }

// Status says how this member is.
func (s *Server) Status() Status {
	out := Status{
		Member: roster.Member{ID: s.Self()}, Leader: s.Leader(), Applied: s.etcd.Server.AppliedIndex(),
		Term:  s.etcd.Server.Term(),
		Bytes: s.etcd.Server.Backend().Size(), Serving: s.serving.Load(),
		Defragmenting: s.defragmenting.Load(),
	}
	if s.peers != nil {
		out.Name, out.Version = s.peers.Name, s.peers.Version
		out.Hashes = s.hashes()
		out.PeerStanding, _ = s.peers.Keys.Standing() // an empty one tells that it cannot be read
	}
	for _, m := range s.Members() {
		if m.ID == out.ID {
			out.Member = m
		}
	}
	out.Leads = out.Leader == out.ID
	return out
}

// Answer is what a member said of itself when it was asked, or why it did not.
type Answer struct {
	roster.Member
	Status Status
	Err    error
}

// Ask asks every member how it is, all at once.
func (s *Server) Ask(ctx context.Context) []Answer {
	members := s.Members()
	out := make([]Answer, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		out[i].Member = m
		if m.ID == s.Self() {
			out[i].Status = s.Status()
			continue
		}
		wg.Go(func() {
			body, err := askPeer(ctx, s.peers.Keys, m.URL+statusPath, maxAnswer)
			if err == nil {
				err = json.Unmarshal(body, &out[i].Status)
			}
			out[i].Err = err
		})
	}
	wg.Wait()
	return out
}

func askPeer(ctx context.Context, keys Keys, address string, most int64) ([]byte, error) {
	secured, err := keys.ClientTLS()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, peerPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: secured, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	err = errors.Join(err, response.Body.Close())
	if err == nil && response.StatusCode != http.StatusOK {
		err = &refusedError{response.Status}
	}
	return body, err
}

// refusedError is the answer of a member that does not tell what it was asked.
type refusedError struct{ status string }

func (e *refusedError) Error() string { return "the server answers " + e.status }

// door is the port for the other members. It takes nobody else.
type door struct {
	server  *http.Server
	handler atomic.Pointer[http.Handler]
}

// openDoor opens it; who comes in is led to the handler of the moment.
func openDoor(p *Peers, handler http.Handler) (*door, error) {
	listener, err := net.Listen("tcp", p.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the other servers on %s: %w; choose another --peer-address", p.Listen, err)
	}
	d := &door{}
	d.lead(handler)
	// Whoever shows no certificate soon is no member, and holds no connection.
	d.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			(*d.handler.Load()).ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: peerHandshake, ReadTimeout: 5 * time.Minute, ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() { _ = d.server.Serve(tls.NewListener(listener, p.Keys.ServerTLS())) }() // it ends when it is closed
	return d, nil
}

func (d *door) lead(to http.Handler) { d.handler.Store(&to) }

// close closes it, and what is open there.
func (d *door) close() {
	if d != nil {
		_ = d.server.Close()
	}
}

// servePeers has the port for the other members lead to this one, which runs.
func (s *Server) servePeers() {
	mux := http.NewServeMux()
	mux.Handle("/", etcdhttp.NewPeerHandler(s.etcd.GetLogger(), s.etcd.Server))
	mux.HandleFunc(statusPath, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.Status()) // who asked has gone if this fails
	})
	mux.HandleFunc(memberPath, tellStanding(s.standing))
	mux.HandleFunc(watermarkPath, s.tellWatermark)
	for _, which := range []Shared{ClusterKeys, PeerKeys} {
		mux.HandleFunc("GET "+string(which), s.tellShared(which))
	}
	s.door.lead(mux)
}

func (s *Server) tellWatermark(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Path[len(watermarkPath):]
	// What this member has counts: it cannot have heard of more than the others had.
	answer, err := s.watermarks.Get(r.Context(), offline.WatermarkPrefix+id, clientv3.WithSerializable())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	mark := "0"
	if len(answer.Kvs) == 1 {
		mark = string(answer.Kvs[0].Value)
	}
	_, _ = io.WriteString(w, mark) // as above
}

// keepWatermark writes down how far this member has come, until ctx ends, so that it
// is noticed when it comes back with less.
func (s *Server) keepWatermark(ctx context.Context) {
	for last := uint64(0); ; {
		// Its own writing is not worth writing down.
		if applied := s.etcd.Server.AppliedIndex(); applied > last+uint64(len(s.Members())) {
			last = applied
			attempt, cancel := context.WithTimeout(ctx, memberPatience)
			_, err := s.watermarks.Put(attempt, offline.WatermarkPrefix+s.Self(), strconv.FormatUint(applied, 10))
			cancel()
			if err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).V(2).Info("Could not write down how far the database is", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(watermarkInterval):
		}
	}
}
