package join

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/node/trust"
)

// defaultTrustInterval is how often the server is asked which authorities count.
const defaultTrustInterval = 5 * time.Minute

// maxTrust bounds what the server may say about authorities, in bytes.
const maxTrust = 256 << 10

// authorities are those that the node trusts, and those that sign serving certificates of nodes; in each the one that
// signs now is the first. The second kind is empty when the server has not told it yet.
type authorities struct{ cluster, nodes []*x509.Certificate }

func parseAuthorities(data []byte) (out []*x509.Certificate, err error) {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return out, nil
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		if !cert.IsCA {
			return nil, fmt.Errorf("%s is not an authority", cert.Subject)
		}
		out, data = append(out, cert), rest
	}
}

func encode(certs []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, cert := range certs {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}) // a buffer takes everything
	}
	return out.Bytes()
}

// signs reports whether one of the authorities signed the pair's certificate.
func signs(authorities []*x509.Certificate, pair *tls.Certificate) bool {
	for _, ca := range authorities {
		if pair.Leaf.CheckSignatureFrom(ca) == nil {
			return true
		}
	}
	return false
}

// CAPool holds the authorities that sign the certificates of those who may call the node, as they are now.
func (id *Identity) CAPool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, ca := range id.trusted.Load().cluster {
		pool.AddCert(ca)
	}
	return pool
}

// clientOutdated tells that the node should have another client certificate.
func (id *Identity) clientOutdated(pair *tls.Certificate) bool {
	return id.unbound.Load() || id.refused.Load() || !signs(id.trusted.Load().cluster[:1], pair)
}

// servingOutdated tells that the node should have another serving certificate.
func (id *Identity) servingOutdated(pair *tls.Certificate) bool {
	known := id.trusted.Load().nodes
	return len(known) > 0 && !signs(known[:1], pair) || id.movedAway(pair.Leaf)
}

// followTrust asks the server again and again which authorities count, until ctx ends.
func (id *Identity) followTrust(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for {
		err := id.refreshTrust(ctx)
		var unknown x509.UnknownAuthorityError
		if err == nil || errors.As(err, &unknown) {
			id.stranger.Store(err != nil)
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &unknown):
			logger.Error(
				err,
				"The server's certificate is of an authority that this node does not trust. If the cluster's authority was "+
					"replaced "+
					"while the node was off, remove ca.crt and client.pem and start the agent with a new join token",
				"directory", id.store.dir,
			)
		case err != nil:
			logger.V(2).Info("Could not ask which authorities count", "err", err)
		}
		// Spread, so that nodes don't come together.
		pause := time.Duration(float64(id.cfg.TrustInterval) * (0.8 + 0.4*rand.Float64()))
		if !id.sleepUntil(ctx, id.cfg.Clock.Now().Add(pause), nil) {
			return
		}
	}
}

func (id *Identity) refreshTrust(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, id.server.JoinPath(trust.Path).String(), nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: id.transport}).Do(request)
	if err != nil {
		return rootCause(err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized:
		id.refused.Store(true)
		wake(id.wakeClient)
		return errors.New("the server refuses the node's certificate")
	default:
		return fmt.Errorf("the server answers %s", response.Status) // one that is older than this agent
	}
	var told trust.Bundle
	if err := json.NewDecoder(io.LimitReader(response.Body, maxTrust)).Decode(&told); err != nil {
		return fmt.Errorf("read which authorities count: %w", err)
	}
	id.refused.Store(false)
	id.Learn(ctx, told.Servers)
	return errors.Join(id.hearRestored(told.Restored), id.adopt(ctx, told))
}

// learnSigner reports whether an authority that the node trusts signed a new client certificate. One that it does not
// know may have replaced one that it does; then the server, which it trusts, says so.
func (id *Identity) learnSigner(ctx context.Context, pair *tls.Certificate) bool {
	if signs(id.trusted.Load().cluster, pair) {
		return true
	}
	before := id.client.Swap(pair)
	id.reconnect()
	if err := id.refreshTrust(ctx); err == nil && signs(id.trusted.Load().cluster, pair) {
		return true
	}
	id.client.Store(before)
	return false
}

// adopt trusts what the server has told from now on.
func (id *Identity) adopt(ctx context.Context, told trust.Bundle) error {
	var next authorities
	var err error
	next.cluster, err = parseAuthorities([]byte(told.Authorities))
	if err == nil {
		next.nodes, err = parseAuthorities([]byte(told.NodeAuthorities))
	}
	if err == nil && (len(next.cluster) == 0 || len(next.nodes) == 0) {
		err = errors.New("there are none")
	}
	if err != nil {
		return fmt.Errorf("read which authorities count: %w", err)
	}
	now := id.trusted.Load()
	for _, part := range []struct {
		file     string
		is, next []*x509.Certificate
	}{{nodeCAFile, now.nodes, next.nodes}, {caFile, now.cluster, next.cluster}} {
		if bytes.Equal(encode(part.is), encode(part.next)) {
			continue
		}
		if err := id.store.write(part.file, encode(part.next)); err != nil {
			return err
		}
		klog.FromContext(ctx).Info(
			"The server has told which authorities count", "file", id.store.path(part.file), "count", len(part.next),
		)
	}
	id.trusted.Store(&next)
	if !bytes.Equal(encode(now.cluster), encode(next.cluster)) {
		id.reconnect()
	}
	wake(id.wakeClient)
	wake(id.wakeServing)
	return nil
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is to be woken already
	}
}
