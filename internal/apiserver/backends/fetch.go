package backends

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/status/remote"
)

// backend is the way to the server behind an APIService.
type backend struct {
	service *apiregistrationv1.APIService
	resolve func(namespace, name string, port int32) (*url.URL, error)
	ledger  *ledger
	client  *http.Client
}

// newBackend makes connections of its own: what is asked here neither waits for what
// clients ask, nor takes part of what they may have.
func newBackend(s *apiregistrationv1.APIService, c *Config, l *ledger) (*backend, error) {
	certificate, key := c.Certificate()
	secure, err := transport.TLSConfigFor(remote.BuildTransportConfig(nil, certificate, key, s))
	if err != nil {
		return nil, fmt.Errorf("set up TLS to the server of APIService %s: %w", s.Name, err)
	}
	return &backend{service: s, resolve: c.Resolve, ledger: l, client: &http.Client{
		Transport: &http.Transport{
			DialContext: c.Dial, TLSClientConfig: secure, MaxResponseHeaderBytes: headerLimit,
			MaxIdleConnsPerHost: 1, IdleConnTimeout: documentPatience,
		},
		// It must not send us, with our certificate, to somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// close ends what is left of connections.
func (b *backend) close() { b.client.CloseIdleConnections() }

// question is one GET.
type question struct {
	path, query string
	header      http.Header
	as          user.Info
}

// aggregator asks for documents, and prober whether a server is there, under the names by
// which servers know them from Kubernetes.
var (
	aggregator = &user.DefaultInfo{Name: "system:aggregator"}
	prober     = &user.DefaultInfo{Name: "system:kube-aggregator", Groups: []string{user.SystemPrivilegedGroup}}
)

// ask sends a question. It returns when the header of the answer is there.
func (b *backend) ask(ctx context.Context, q question) (*http.Response, error) {
	to := b.service.Spec.Service
	at, err := b.resolve(to.Namespace, to.Name, *to.Port)
	if err != nil {
		return nil, err
	}
	at.Path, at.RawQuery = q.path, q.query
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", at, err)
	}
	for name, values := range q.header {
		r.Header[name] = values
	}
	transport.SetAuthProxyHeaders(r, q.as.GetName(), q.as.GetUID(), q.as.GetGroups(), q.as.GetExtra())
	answer, err := b.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("failing or missing response from %v: %w", at, plain(err))
	}
	return answer, nil
}

// plain leaves out what http.Client says of the question: it was said.
func plain(err error) error {
	if asked := (&url.Error{}); errors.As(err, &asked) {
		if asked.Timeout() {
			return context.DeadlineExceeded
		}
		return asked.Err
	}
	return err
}

// alive asks whether the server serves the version of its APIService. Nothing of the
// answer but its status is read.
func (b *backend) alive(ctx context.Context) error {
	answer, err := b.ask(ctx, question{path: versionPath(b.service), as: prober})
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("bad status from %v: %d", answer.Request.URL, answer.StatusCode)
	}
	return nil
}

// errTooLarge is the reason why a document is not taken.
var errTooLarge = errors.New("the document is too large")

// document asks for a document and reads it, as far as it may go. The caller closes the
// account of what it got.
func (b *backend) document(ctx context.Context, q question, l limit) (*http.Response, []byte, *account, error) {
	ctx, cancel := context.WithTimeout(ctx, documentPatience)
	defer cancel()
	answer, err := b.ask(ctx, q)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("GET %s: %w", q.path, err)
	}
	defer answer.Body.Close()
	held := &account{of: b.ledger}
	body, err := read(answer.Body, l, held)
	if err != nil {
		held.close()
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			err = fmt.Errorf("it has not come to its end within %v", documentPatience)
		}
		return nil, nil, nil, fmt.Errorf("GET %s: %w", q.path, err)
	}
	return answer, body, held, nil
}

// partSize is how much is read at a time.
const partSize = 32 << 10

// read reads a body to its end, or to the limit. What it takes is paid for before.
func read(from io.Reader, l limit, held *account) ([]byte, error) {
	var body []byte
	var count counter
	part := make([]byte, partSize)
	for {
		n, err := from.Read(part)
		before := count.values
		count.add(part[:n])
		if int64(len(body)+n) > l.bytes {
			return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, l.bytes)
		}
		if count.values > l.values {
			return nil, fmt.Errorf("%w: more than %d values", errTooLarge, l.values)
		}
		if err := held.take(int64(n) + valueCost*(count.values-before)); err != nil {
			return nil, err
		}
		body = append(body, part[:n]...)
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// versionPath is where a server tells of the version that an APIService is for.
func versionPath(s *apiregistrationv1.APIService) string {
	return "/apis/" + s.Spec.Group + "/" + s.Spec.Version
}
