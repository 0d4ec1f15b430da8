// Package fulllists lets few lists of all objects of a kind be answered at a time, so that they do not hold up
// the other requests.
package fulllists

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver/listsize"
	"github.com/everynode/everynode/internal/apiserver/scheme"
)

// maxPage is how long a page of a list may be that need not wait for its turn.
const maxPage = 500

// maxRest is how long a turn rests at most after it was used.
const maxRest = time.Second

// maxTurn is how long the start of a watch has its turn, and how long it waits for one. A list
// has the deadline of its request.
const maxTurn = time.Minute

// TakeTurns answers full lists, of all objects of a kind in all namespaces or of very many
// in one, a few at a time, and so the starts of watches that begin with such a list. Each
// takes a core for as long as it lasts, and memory for all of its objects.
// After each its turn rests for as long as it lasted: whoever asks without a pause is busy
// with the answer as well, often on the same machine. However many are asked for, three
// quarters of the cores are left for nodes, rollouts and all else. Fairness has decided before whose list comes here,
// and in which order.
// Administrators, nodes and the parts of the cluster do not wait.
func TakeTurns(c *genericapiserver.Config, types *scheme.Set, cores int) {
	turns := make(chan struct{}, max(1, cores/2))
	chain := c.BuildHandlerChainFunc
	c.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return chain(&byTurns{api: api, types: types, turns: turns, clock: clock.RealClock{}, sizes: listsize.New()}, c)
	}
}

// byTurns hands requests on to the API, full lists by turns.
type byTurns struct {
	api   http.Handler
	types *scheme.Set
	turns chan struct{}
	clock clock.WithDelayedExecution
	// sizes knows in which namespaces lists were long.
	sizes *listsize.Sizes
}

func (b *byTurns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !mayBeFull(info, r.URL.Query()) || goesFirst(r.Context()) {
		b.api.ServeHTTP(w, r)
		return
	}
	of := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	if info.Namespace != "" && !b.sizes.IsLong(of, info.Namespace) {
		// The first long list of a namespace is the last that does not wait.
		b.serveMeasured(w, r, of, info.Namespace)
		return
	}
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if info.Verb == "watch" {
		ctx, cancel = b.withTimeout(ctx)
	}
	defer cancel()
	select {
	case b.turns <- struct{}{}:
	case <-ctx.Done():
		err := apierrors.NewTimeoutError("too many full lists are asked for at a time; "+
			"ask for pages with limit and without resourceVersion=0, or for a namespace", 1)
		version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		responsewriters.ErrorNegotiated(err, b.types.Codecs, version, w, r)
		return
	}
	end, release := b.begin()
	defer end()
	switch {
	case info.Verb == "watch":
		defer b.clock.AfterFunc(maxTurn, release).Stop()
		b.api.ServeHTTP(w, r.WithContext(flowcontrol.WithInitializationSignal(r.Context(), started{end, r.Context()})))
	case info.Namespace != "":
		b.serveMeasured(w, r, of, info.Namespace)
	default:
		b.api.ServeHTTP(w, r)
	}
}

// begin starts a turn. end has it rest and end, release ends it at once; both may be called
// more than once.
func (b *byTurns) begin() (end, release func()) {
	begin := b.clock.Now()
	release = sync.OnceFunc(func() { <-b.turns })
	return func() { b.clock.AfterFunc(min(b.clock.Since(begin), maxRest), release) }, release
}

func (b *byTurns) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	timer := b.clock.AfterFunc(maxTurn, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

func (b *byTurns) serveMeasured(w http.ResponseWriter, r *http.Request, of schema.GroupResource, namespace string) {
	measured := listsize.Writer{ResponseWriter: w}
	defer func() { b.sizes.Note(of, namespace, &measured) }()
	b.api.ServeHTTP(responsewriter.WrapForHTTP1Or2(&measured), r)
}

// started is told when a watch has sent what there was when it began. Fairness is told then, too.
type started struct {
	end   func()
	outer context.Context
}

func (s started) Signal() {
	s.end()
	flowcontrol.WatchInitialized(s.outer)
}

// Wait implements flowcontrol.InitializationSignal; nobody waits for this one.
func (started) Wait() {}

// mayBeFull reports whether a request may be answered with all objects of a kind, or of a namespace.
func mayBeFull(info *request.RequestInfo, query url.Values) bool {
	if !info.IsResourceRequest || info.Subresource != "" || info.Name != "" || isNarrow(query.Get("fieldSelector")) {
		return false
	}
	version := query.Get("resourceVersion")
	fromTheStart := version == "" || strings.Trim(version, "0") == ""
	switch info.Verb {
	case "watch":
		// One that begins at a version is told of changes alone, unless it asks for all there is.
		return info.Namespace == "" && (fromTheStart || query.Has("sendInitialEvents"))
	case "list":
		limit, err := strconv.Atoi(query.Get("limit"))
		// Where any version will do, the limit does not count: clients of old are used to getting all.
		paged := err == nil && limit > 0 && limit <= maxPage && (version == "" || !fromTheStart)
		return !paged
	}
	return false
}

// isNarrow reports whether a selector chooses the objects of one node or one name.
func isNarrow(text string) bool {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return false
	}
	for _, field := range []string{"metadata.name", "spec.nodeName"} {
		if value, ok := selector.RequiresExactMatch(field); ok && value != "" {
			return true
		}
	}
	return false
}

// goesFirst reports whether the caller is one whom the cluster depends on.
func goesFirst(ctx context.Context) bool {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return false
	}
	if strings.HasPrefix(caller.GetName(), "system:") &&
		!strings.HasPrefix(caller.GetName(), "system:serviceaccount:") && caller.GetName() != user.Anonymous {
		return true
	}
	return slices.ContainsFunc(caller.GetGroups(), func(g string) bool {
		return g == user.SystemPrivilegedGroup || g == user.NodesGroup || g == "system:serviceaccounts:kube-system"
	})
}
