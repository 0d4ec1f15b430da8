package backends

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	openapiv2 "k8s.io/kube-aggregator/pkg/controllers/openapi/aggregator"
	openapiv3controller "k8s.io/kube-aggregator/pkg/controllers/openapiv3"
	openapiv3 "k8s.io/kube-aggregator/pkg/controllers/openapiv3/aggregator"
	"k8s.io/kube-openapi/pkg/common"
)

// openAPI is the library's merging of the documents of all servers, those of this
// process and those of others.
type openAPI struct {
	swagger openapiv2.SpecAggregator
	specs   openapiv3.SpecProxier
}

// ServeOpenAPI serves the documents of OpenAPI of the aggregator, of the servers behind
// it in this process, and of those of others. The server must have been prepared.
func (k *Keeper) ServeOpenAPI(
	server *genericapiserver.GenericAPIServer, swagger *common.Config, specs *common.OpenAPIV3Config,
) (err error) {
	paths, handler := server.Handler.NonGoRestfulMux, server.Handler.GoRestfulContainer
	downloader := openapiv2.NewDownloader()
	k.openAPI.swagger, err = openapiv2.BuildAndRegisterAggregator(
		&downloader, server.NextDelegate(), handler.RegisteredWebServices(), swagger, paths,
	)
	if err != nil {
		return fmt.Errorf("serve OpenAPI: %w", err)
	}
	k.openAPI.specs, err = openapiv3.BuildAndRegisterAggregator(
		openapiv3.NewDownloader(), server.NextDelegate(), handler, specs, ownFirst{paths, k},
	)
	if err != nil {
		return fmt.Errorf("serve OpenAPI version 3: %w", err)
	}
	return nil
}

// followLocal keeps up with the servers of this process until ctx ends.
func (o *openAPI) followLocal(ctx context.Context) {
	openapiv3controller.NewAggregationController(o.specs).RunWithContext(ctx)
}

// take has what a server says merged. All is in memory.
func (o *openAPI) take(s *apiregistrationv1.APIService, d *documents) (err error) {
	if held := d.get(openAPIPath); held != nil && held.status == http.StatusOK {
		err = errors.Join(o.swagger.AddUpdateAPIService(s, d), o.swagger.UpdateAPIServiceSpec(s.Name))
	}
	if index := d.get(indexPath); index != nil {
		// The library remembers for good that a server had no index.
		o.specs.RemoveAPIServiceSpec(s.Name)
		o.specs.AddUpdateAPIService(d, s)
		if failed := o.specs.UpdateAPIServiceSpec(s.Name); failed != nil && d.get(openAPIPath) != nil {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// drop takes a server out.
func (o *openAPI) drop(name string) {
	o.swagger.RemoveAPIService(name)
	o.specs.RemoveAPIServiceSpec(name)
}

// ownFirst is where the library registers its handlers. It would have all who ask for
// any document wait for a server that is slow to send its own.
type ownFirst struct {
	paths  *mux.PathRecorderMux
	keeper *Keeper
}

// Handle implements common.PathHandlerByGroupVersion.
func (f ownFirst) Handle(path string, h http.Handler) { f.paths.Handle(path, h) }

// HandlePrefix implements common.PathHandlerByGroupVersion.
func (f ownFirst) HandlePrefix(path string, h http.Handler) {
	f.paths.HandlePrefix(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m := f.keeper.documenting(r.URL.Path); m != nil {
			m.serveSpec(w, r)
			return
		}
		h.ServeHTTP(w, r)
	}))
}

// documenting finds the server that has the document of a path, among those of others.
func (k *Keeper) documenting(path string) *minder {
	version, ok := strings.CutPrefix(path, indexPath+"/apis/")
	group, version, cut := strings.Cut(version, "/")
	if !ok || !cut {
		return nil
	}
	k.mu.RLock()
	m := k.minded[version+"."+group]
	k.mu.RUnlock()
	if m == nil || !m.documents.indexed(m.now()) {
		return nil
	}
	return m
}

// handedOn are the parts of questions and answers that clients and servers tell each
// other about a document.
var (
	handedOn = []string{"Accept", "If-None-Match"}
	handed   = []string{"Content-Type", "Etag", "Cache-Control", "Expires", "Last-Modified", "Vary"}
)

func handedLedger() ledger {
	return ledger{what: "documents that clients are handed of", all: allHanded, left: allHanded}
}

// serveSpec hands a document from the server on, in the name of who asks.
func (m *minder) serveSpec(w http.ResponseWriter, r *http.Request) {
	who, ok := request.UserFrom(r.Context())
	if !ok {
		http.Error(w, "missing user", http.StatusInternalServerError)
		return
	}
	b, err := newBackend(m.now(), &m.keeper.config, &m.keeper.handed)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer b.close()
	q := question{path: r.URL.Path, query: r.URL.RawQuery, header: http.Header{}, as: who}
	for _, name := range handedOn {
		if values := r.Header.Values(name); len(values) > 0 {
			q.header[name] = values
		}
	}
	answer, body, held, err := b.document(r.Context(), q, openAPILimit)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer held.close()
	for _, name := range handed {
		if values := answer.Header.Values(name); len(values) > 0 {
			w.Header()[name] = values
		}
	}
	if answer.StatusCode >= http.StatusMultipleChoices && answer.StatusCode != http.StatusNotModified &&
		answer.StatusCode < http.StatusBadRequest {
		http.Error(w, "the server would send its client elsewhere", http.StatusBadGateway)
		return
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(body)
}
