package membership

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/files/datadir"
	"github.com/everynode/everynode/internal/files/wholefile"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/storage/members"
)

// joinPatience is how long a server waits at a time for an answer of the one it joins.
const joinPatience = 30 * time.Second

// maxWelcome bounds what it is told, in bytes.
const maxWelcome = 8 << 20

// Join gets what this server needs to be one of several from the one at the URL, with a
// token for servers, and writes it to the data directory; New and Run do the rest. A
// server that has joined before is left as it is. Nothing is written, here or there,
// before it is clear that this server may join and can reach the others.
func Join(ctx context.Context, o config.Options, at, token string) error {
	known, err := Read(o.DataDir)
	if err != nil {
		return err
	}
	if known != nil && folder.HasDatabase(o.DataDir) {
		klog.FromContext(ctx).Info("This server has joined before; --join is not needed any more")
		return nil
	}
	if known == nil && (folder.HasDatabase(o.DataDir) || folder.Exists(filepath.Join(o.DataDir, "pki"))) {
		return fmt.Errorf(
			"%s holds the data of a cluster of its own, which joining would give up; choose another --data-dir, or move it away",
			o.DataDir,
		)
	}
	j, err := NewJoiner(o, at, token)
	if err != nil {
		return err
	}
	return j.Join(ctx)
}

// Join asks, and writes what it is told; see the function Join.
func (j *Joiner) Join(ctx context.Context) error {
	defer j.client.CloseIdleConnections()
	if err := j.check(ctx); err != nil {
		return fmt.Errorf("join %s: %w", j.base, err)
	}
	forget, err := datadir.Make(j.options.DataDir, 0o700)
	if err != nil {
		return err
	}
	release, forgetLock, err := folder.Lock(j.options.DataDir)
	if err != nil {
		return err
	}
	defer release()
	var welcome members.Welcome
	if err := j.ask(ctx, false, &welcome); err != nil {
		forgetLock()
		forget()
		return fmt.Errorf("join %s: %w", j.base, err)
	}
	return j.settle(welcome)
}

// Joiner is a server that joins.
type Joiner struct {
	options config.Options
	base    *url.URL
	token   authn.JoinToken
	peer    string
	client  *http.Client
	// Data is the version of the data that it writes.
	Data int
}

// NewJoiner checks what a server is given to join the one at the URL with a token.
func NewJoiner(o config.Options, at, token string) (*Joiner, error) {
	base, err := url.Parse(at)
	if err != nil || base.Scheme != "https" || base.Hostname() == "" {
		return nil, fmt.Errorf("--join %q: expected https://HOST:PORT of a server", at)
	}
	j := &Joiner{options: o, base: base, Data: datadir.Version}
	j.token, err = authn.ParseJoinToken(strings.TrimSpace(token))
	if err != nil {
		return nil, err
	}
	if j.token.CAHash == "" {
		return nil, errors.New(
			"the token lacks the fingerprint of the cluster's authority; give all that \"everynode token create --server\" " +
				"has " +
				"printed",
		)
	}
	j.options.Name = ServerName(o.Name)
	if err := (members.Joining{Name: j.options.Name}).Validate(); err != nil {
		return nil, err
	}
	j.peer, err = peerURL(o.PeerAddress, o.Advertised().String())
	if err != nil {
		return nil, err
	}
	j.client = &http.Client{
		Timeout: joinPatience,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies, against the hash that the token brought.
			VerifyConnection: func(state tls.ConnectionState) error {
				return verifyByHash(state.PeerCertificates, base.Hostname(), j.token.CAHash)
			},
		}},
	}
	return j, nil
}

// errForeign says that a server is of another cluster than the token.
var errForeign = errors.New(
	"its authority is not the one that the token names: it is a server of another cluster, or the token is",
)

// verifyByHash takes a server whose chain holds the authority with that hash, and
// whose certificate that authority signed, for the host.
func verifyByHash(chain []*x509.Certificate, host, hash string) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for _, cert := range chain {
		if pki.HashOf(cert) == hash {
			roots.AddCert(cert)
			found = true
		} else {
			between.AddCert(cert)
		}
	}
	if !found {
		return errForeign
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: between,
		DNSName:       host,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}); err != nil {
		return fmt.Errorf("its certificate cannot be trusted: %w", err)
	}
	return nil
}

// check asks whether this server may join, and whether it reaches the others and can
// be reached.
func (j *Joiner) check(ctx context.Context) error {
	if err := canListen(j.peer); err != nil {
		return err
	}
	var welcome members.Welcome
	if err := j.ask(ctx, true, &welcome); err != nil {
		return err
	}
	if err := members.CheckData(j.Data, welcome.Data); err != nil {
		return err
	}
	for _, k := range welcome.Known {
		address := strings.TrimPrefix(k.URL, "https://")
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		klog.FromContext(ctx).Info("A server's database does not answer", "server", k.Name, "address", address, "err", err)
	}
	return errors.New(
		"no server's database can be reached from here; servers must reach each other at the port of their --peer-address, " +
			"2380 unless it was chosen otherwise",
	)
}

// ask asks until the servers are ready to answer.
func (j *Joiner) ask(ctx context.Context, check bool, welcome *members.Welcome) error {
	body, err := json.Marshal(members.Joining{
		Name:    j.options.Name,
		Peer:    j.peer,
		Port:    j.options.Port(),
		Version: j.options.Version(),
		Data:    j.Data,
		Check:   check,
	})
	if err != nil {
		return fmt.Errorf("encode who wants to join: %w", err)
	}
	for told := ""; ; {
		answer, again, err := j.post(ctx, body)
		if err == nil {
			return json.Unmarshal(answer, welcome)
		}
		if !again {
			return err
		}
		if told != err.Error() {
			told = err.Error()
			klog.FromContext(ctx).Info("Waiting to join", "server", j.base.String(), "reason", told)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// post asks once. again tells that the same question can be answered later.
func (j *Joiner) post(ctx context.Context, body []byte) (answer []byte, again bool, err error) {
	request, err := http.NewRequestWithContext(
		ctx, http.MethodPost, j.base.JoinPath(members.Path).String(), bytes.NewReader(body),
	)
	if err != nil {
		return nil, false, err
	}
	request.Header.Set("Authorization", "Bearer "+j.token.Bootstrap())
	request.Header.Set("Content-Type", "application/json")
	response, err := j.client.Do(request)
	var failed *url.Error
	if errors.As(err, &failed) {
		var network *net.OpError
		// What is not about trust is a server that is away for a moment.
		return nil, ctx.Err() == nil && (errors.As(err, &network) || failed.Timeout() || errors.Is(err, io.EOF)), failed.Err
	}
	if err != nil {
		return nil, false, err
	}
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxWelcome))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, true, fmt.Errorf("read the answer: %w", err)
	}
	text := strings.TrimSpace(string(answer))
	switch response.StatusCode {
	case http.StatusOK:
		return answer, false, nil
	case http.StatusUnauthorized:
		return nil, false, errors.New(
			"the token is wrong or has ended; make one with \"everynode token create --server\" on a server",
		)
	case http.StatusForbidden:
		return nil, false, errors.New(
			"the token is not one for servers; make one with \"everynode token create --server\" on a server",
		)
	case http.StatusNotFound:
		return nil, false, errors.New(
			"the server that is there knows nothing of other servers: it is too old, or keeps its data in an etcd of others",
		)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusGatewayTimeout:
		return nil, true, errors.New(text)
	}
	return nil, false, errors.New(text)
}

// settle writes what the server was told. One that is stopped meanwhile joins again.
func (j *Joiner) settle(w members.Welcome) error {
	dir := j.options.DataDir
	m := &File{
		Name: j.options.Name, URL: j.peer, Settings: w.Settings, Known: w.Known, Unfinished: true, Token: j.token.ID,
	}
	if err := m.Write(dir); err != nil {
		return err
	}
	if err := w.Keys.Import(filepath.Join(dir, "pki"), folder.Peers(dir)); err != nil {
		return err
	}
	for path, content := range map[string][]byte{
		filepath.Join(dir, folder.EncryptionFile): w.Encryption,
		encryption.File(dir):                      w.StoredKeys,
	} {
		if len(content) == 0 {
			continue
		}
		if err := wholefile.Write(path, 0o600, wholefile.Bytes(content)); err != nil {
			return fmt.Errorf("write how the cluster encrypts what is stored: %w", err)
		}
	}
	m.Unfinished = false
	return m.Write(dir)
}
