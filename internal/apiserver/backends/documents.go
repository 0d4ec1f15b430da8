package backends

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/handler3"
)

// Where the documents are.
const (
	discoveryPath = "/apis"
	openAPIPath   = "/openapi/v2"
	indexPath     = "/openapi/v3"
)

// document is one that a server gave, or said that it has not got.
type document struct {
	status    int
	mediaType string
	body      []byte
	etag      string // ours, by its content
	theirs    string // what the server calls it
	held      *account
}

func (d *document) close() {
	if d != nil && d.held != nil {
		d.held.close()
	}
}

// documents are those of one server. As a handler they answer from memory, at once.
type documents struct {
	mu     sync.RWMutex
	byPath map[string]*document
}

func newDocuments() *documents { return &documents{byPath: map[string]*document{}} }

func (d *documents) get(path string) *document {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.byPath[path]
}

// put replaces a document, by none if it is nil. It says whether that is another one.
func (d *documents) put(path string, next *document) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.byPath[path]
	if last == next {
		return false
	}
	if next == nil {
		delete(d.byPath, path)
	} else {
		d.byPath[path] = next
	}
	last.close()
	return last == nil || next == nil || last.status != next.status || last.etag != next.etag
}

// close forgets all.
func (d *documents) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, held := range d.byPath {
		held.close()
		delete(d.byPath, path)
	}
}

// ServeHTTP implements http.Handler.
func (d *documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch held := d.get(r.URL.Path); {
	case held == nil:
		http.Error(w, "the server has not given this document", http.StatusServiceUnavailable)
	case held.status != http.StatusOK:
		http.Error(w, http.StatusText(held.status), held.status)
	case r.Header.Get("If-None-Match") == held.etag:
		w.WriteHeader(http.StatusNotModified)
	default:
		w.Header().Set("Content-Type", held.mediaType)
		w.Header().Set("Etag", held.etag)
		_, _ = w.Write(held.body)
	}
}

// fetch asks for a document, unless it is as it was.
func (d *documents) fetch(ctx context.Context, b *backend, path, accept string, l limit) (*document, error) {
	last := d.get(path)
	q := question{path: path, header: http.Header{"Accept": {accept}}, as: aggregator}
	if last != nil && last.theirs != "" {
		q.header.Set("If-None-Match", last.theirs)
	}
	answer, body, held, err := b.document(ctx, q, l)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusNotModified && last != nil && last.theirs != "" {
		held.close()
		return last, nil
	}
	next := &document{status: answer.StatusCode, mediaType: answer.Header.Get("Content-Type")}
	if answer.StatusCode != http.StatusOK {
		held.close()
		return next, nil
	}
	next.body, next.held, next.theirs = body, held, answer.Header.Get("Etag")
	next.name()
	return next, nil
}

func (d *document) name() {
	sum := sha256.Sum256(d.body)
	d.etag = `"` + hex.EncodeToString(sum[:]) + `"`
}

// read asks the server for all. It says whether anything is another than before, and
// what could not be read; that is missing from now on, if it is discovery, and as it
// was otherwise.
func (d *documents) read(ctx context.Context, b *backend) (changed bool, err error) {
	parts := []func(context.Context, *backend) (bool, error){d.readDiscovery, d.readOpenAPI, d.readIndex}
	others, failures := make([]bool, len(parts)), make([]error, len(parts))
	var group sync.WaitGroup
	for i, part := range parts { // a server that is slow with one is not to hold up the others
		group.Go(func() { others[i], failures[i] = part(ctx, b) })
	}
	group.Wait()
	return slices.Contains(others, true), errors.Join(failures...)
}

var wholeDiscovery = schema.GroupVersionKind{
	Group:   apidiscoveryv2.GroupName,
	Version: "v2",
	Kind:    "APIGroupDiscoveryList",
}

// readDiscovery asks which kinds there are: for all groups at once, and if the server
// does not know that question, for its version.
func (d *documents) readDiscovery(ctx context.Context, b *backend) (changed bool, err error) {
	version := versionPath(b.service)
	whole, err := d.fetch(ctx, b, discoveryPath, discovery.AcceptV2, discoveryLimit)
	if err != nil {
		return d.lost(version), err
	}
	if is, _ := discovery.ContentTypeIsGVK(whole.mediaType, wholeDiscovery); is && whole.status == http.StatusOK {
		return d.put(discoveryPath, whole), nil
	}
	whole.close()
	changed = d.put(discoveryPath, &document{status: http.StatusNotFound})
	one, err := d.fetch(ctx, b, version, "application/json", discoveryLimit)
	if err == nil && one.status != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", version, http.StatusText(one.status))
	}
	if err != nil {
		return d.lost(version), err
	}
	return d.put(version, one) || changed, nil
}

// lost forgets what kinds there are: nobody is to believe what may have changed.
func (d *documents) lost(version string) bool {
	first := d.put(discoveryPath, nil)
	return d.put(version, nil) || first
}

func (d *documents) readOpenAPI(ctx context.Context, b *backend) (bool, error) {
	next, err := d.fetch(ctx, b, openAPIPath, "application/json", openAPILimit)
	if err != nil {
		return false, err
	}
	if next.status != http.StatusOK && next.status != http.StatusNotFound {
		return false, fmt.Errorf("GET %s: %s", openAPIPath, http.StatusText(next.status))
	}
	return d.put(openAPIPath, next), nil
}

// readIndex asks where the documents of OpenAPI version 3 are. A server has a word about
// the version of its APIService, and about no other.
func (d *documents) readIndex(ctx context.Context, b *backend) (bool, error) {
	next, err := d.fetch(ctx, b, indexPath, "application/json", indexLimit)
	if err != nil {
		return false, err
	}
	if next.status == http.StatusOK && next != d.get(indexPath) {
		err = next.keep(b.service)
	} else if next.status != http.StatusOK && next.status != http.StatusNotFound {
		err = errors.New(http.StatusText(next.status))
	}
	if err != nil {
		next.close()
		return false, fmt.Errorf("GET %s: %w", indexPath, err)
	}
	return d.put(indexPath, next), nil
}

// keep leaves only the version of an APIService in an index.
func (d *document) keep(s *apiregistrationv1.APIService) error {
	all, own := handler3.OpenAPIV3Discovery{}, handler3.OpenAPIV3Discovery{
		Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{},
	}
	if err := json.Unmarshal(d.body, &all); err != nil {
		return err
	}
	key := strings.TrimPrefix(versionPath(s), "/")
	if at, ok := all.Paths[key]; ok {
		path := indexPath + "/" + key
		if at.ServerRelativeURL != path && !strings.HasPrefix(at.ServerRelativeURL, path+"?") {
			at.ServerRelativeURL = path
		}
		own.Paths[key] = at
	}
	var err error
	d.body, err = json.Marshal(own)
	if err != nil {
		return err
	}
	d.mediaType = "application/json"
	d.name()
	return nil
}

// indexed says whether the server has a document of OpenAPI version 3 for a version.
func (d *documents) indexed(s *apiregistrationv1.APIService) bool {
	index := d.get(indexPath)
	return index != nil && index.status == http.StatusOK &&
		strings.Contains(string(index.body), `"`+strings.TrimPrefix(versionPath(s), "/")+`"`)
}
