package networkapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metainternalversionvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/everynode/everynode/internal/apiserver/networkapi/journal"
	"github.com/everynode/everynode/internal/apiserver/plaingroup"
	"github.com/everynode/everynode/internal/node/peer"
)

const (
	// bookmarkEvery is how often a watch that wants to know is told how far it has come.
	bookmarkEvery = time.Minute
	// shortestWatch is how long a watch lasts whose client named no time, or up to twice as
	// long.
	shortestWatch = 30 * time.Minute
)

// API serves the group.
type API struct{ book *book }

// Install has a server serve the group.
func Install(server *genericapiserver.GenericAPIServer) *API {
	a := &API{newBook()}
	plaingroup.Install(server, plaingroup.Group{GroupVersion: peer.GroupVersion, Serve: a, Resources: []metav1.APIResource{
		{Name: peer.Resource, Kind: peer.Kind, Verbs: []string{"list", "watch"}},
	}})
	return a
}

// Run follows the nodes until ctx ends; it returns once they have been read.
func (a *API) Run(ctx context.Context, nodes Nodes) error {
	go a.book.follow(ctx, nodes)
	select {
	case <-ctx.Done():
		return fmt.Errorf("read all nodes: %w", ctx.Err())
	case <-a.book.full:
		return nil
	}
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		plaingroup.WriteError(w, apierrors.NewInternalError(errors.New("the request was not understood")))
		return
	}
	options, err := a.check(info, r)
	switch {
	case err != nil:
		plaingroup.WriteError(w, err)
	case options.Watch:
		a.watch(w, r, options)
	default:
		a.list(w)
	}
}

// check reads what is asked for.
func (a *API) check(info *request.RequestInfo, r *http.Request) (*metainternalversion.ListOptions, error) {
	resource := peer.GroupVersion.WithResource(info.Resource).GroupResource()
	if info.Resource != peer.Resource || info.Subresource != "" {
		return nil, apierrors.NewGenericServerResponse(
			http.StatusNotFound, info.Verb, resource, info.Name, "the server could not find the requested resource", 0, false,
		)
	}
	if r.Method != http.MethodGet || info.Name != "" && r.URL.Query().Get("fieldSelector") == "" {
		return nil, apierrors.NewMethodNotSupported(resource, info.Verb)
	}
	options := &metainternalversion.ListOptions{}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion,
		options); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := metainternalversionvalidation.ValidateListOptions(options, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if options.LabelSelector != nil && !options.LabelSelector.Empty() ||
		options.FieldSelector != nil && !options.FieldSelector.Empty() || options.Continue != "" {
		return nil, apierrors.NewBadRequest(
			"nodes of this group are told all at once: selectors and continue are not supported",
		)
	}
	select {
	case <-a.book.full:
		return options, nil
	default:
		return nil, apierrors.NewTooManyRequests("the nodes have not been read yet", 1)
	}
}

// list writes all nodes as they are in memory, which a moment ago may have been others.
func (a *API) list(w http.ResponseWriter) {
	nodes, version := a.book.all()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	out := &stream{w: w}
	out.write(fmt.Appendf(
		nil,
		`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[`,
		peer.ListKind, peer.GroupVersion.String(), version,
	))
	for i, n := range nodes {
		if i > 0 {
			out.write([]byte(","))
		}
		out.write(n.Object)
	}
	out.write([]byte("]}\n"))
}

// stream writes until a write fails: then the client has gone.
type stream struct {
	w   http.ResponseWriter
	err error
}

func (s *stream) write(p []byte) {
	if s.err == nil {
		_, s.err = s.w.Write(p)
	}
}

func (s *stream) flush() {
	if s.err == nil {
		s.err = http.NewResponseController(s.w).Flush()
	}
}

// watch writes changes as they come. A client that reads slowly holds up nobody: it has
// only its place in the journal, and is told when that is gone.
func (a *API) watch(w http.ResponseWriter, r *http.Request, o *metainternalversion.ListOptions) {
	version, err := strconv.ParseUint("0"+o.ResourceVersion, 10, 64)
	if err != nil {
		plaingroup.WriteError(
			w, apierrors.NewBadRequest(fmt.Sprintf("Invalid value for resourceVersion: %q", o.ResourceVersion)),
		)
		return
	}
	// From here on the request costs next to nothing: others of its kind may begin.
	flowcontrol.WatchInitialized(r.Context())
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusOK)
	out := &stream{w: w}
	wanted := o.SendInitialEvents != nil && *o.SendInitialEvents
	if wanted || version == 0 && o.SendInitialEvents == nil {
		var nodes []*journal.Node
		nodes, version = a.book.all()
		for _, n := range nodes {
			out.write(n.Added)
		}
		if wanted && o.AllowWatchBookmarks {
			out.write(journal.Bookmark(version, true))
		}
	} else if version == 0 {
		_, version = a.book.all()
	}
	out.flush()
	a.follow(r.Context(), out, version, lasting(o), o.AllowWatchBookmarks)
}

// lasting is how long a watch lasts.
func lasting(o *metainternalversion.ListOptions) time.Duration {
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		return time.Duration(*o.TimeoutSeconds) * time.Second
	}
	return shortestWatch + rand.N(shortestWatch) //nolint:gosec // chance only spreads the work
}

func (a *API) follow(ctx context.Context, out *stream, version uint64, last time.Duration, bookmarks bool) {
	end := time.NewTimer(last)
	defer end.Stop()
	mark := time.NewTicker(bookmarkEvery)
	defer mark.Stop()
	var stopping <-chan struct{}
	if signal := request.ServerShutdownSignalFrom(ctx); signal != nil {
		stopping = signal.ShuttingDown()
	}
	for out.err == nil {
		events, known, more, reached := a.book.since(version)
		if !known {
			out.write(gone(version))
			out.flush()
			return
		}
		for _, e := range events {
			out.write(e.Line)
		}
		if len(events) > 0 {
			out.flush()
		}
		version = max(version, reached)
		select {
		case <-more:
		case <-mark.C:
			if bookmarks {
				out.write(journal.Bookmark(version, false))
				out.flush()
			}
		case <-end.C:
			return
		case <-stopping:
			return
		case <-ctx.Done():
			return
		}
	}
}

// gone is the line of a watch that says that what it wants to know is not known any more.
func gone(version uint64) []byte {
	status := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", version)).Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	object, err := json.Marshal(status)
	if err != nil {
		object = []byte("{}") // of strings and a number; it cannot fail
	}
	return journal.Line(watch.Error, object)
}
