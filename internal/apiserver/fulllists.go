package apiserver

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver/scheme"
)

// maxPage is how long a page of a list may be that need not wait for its turn.
const maxPage = 500

// maxRest is how long a turn rests at most after it was used.
const maxRest = time.Second

// takeTurns answers full lists, of all objects of a kind in all namespaces, a few at a
// time. Each takes a core for as long as it lasts, and memory for all of its objects.
// After each its turn rests for as long as it lasted: whoever asks without a pause is busy
// with the answer as well, often on the same machine. However many are asked for, three
// quarters of the cores are left for nodes, rollouts and all else. Fairness has decided before whose list comes here, and in which order.
// Administrators, nodes and the parts of the cluster do not wait.
func takeTurns(c *genericapiserver.Config, types *scheme.Set, cores int) {
	turns := make(chan struct{}, max(1, cores/2))
	chain := c.BuildHandlerChainFunc
	c.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return chain(inTurn(api, types, turns, clock.RealClock{}), c)
	}
}

func inTurn(api http.Handler, types *scheme.Set, turns chan struct{}, c clock.WithDelayedExecution) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !isFullList(info, r) || goesFirst(r.Context()) {
			api.ServeHTTP(w, r)
			return
		}
		select {
		case turns <- struct{}{}:
			begin := c.Now()
			defer func() { c.AfterFunc(min(c.Since(begin), maxRest), func() { <-turns }) }()
			api.ServeHTTP(w, r)
		case <-r.Context().Done():
			err := apierrors.NewTimeoutError("too many full lists are asked for at a time; ask for pages with limit, or for a namespace", 1)
			responsewriters.ErrorNegotiated(err, types.Codecs, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
		}
	})
}

// isFullList says whether a request may be answered with all objects of a kind.
func isFullList(info *request.RequestInfo, r *http.Request) bool {
	if !info.IsResourceRequest || info.Verb != "list" || info.Namespace != "" || info.Subresource != "" {
		return false
	}
	query := r.URL.Query()
	limit, err := strconv.Atoi(query.Get("limit"))
	paged := err == nil && limit > 0 && limit <= maxPage
	return !paged && query.Get("fieldSelector") == ""
}

// goesFirst says whether the caller is one whom the cluster depends on.
func goesFirst(ctx context.Context) bool {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return false
	}
	if strings.HasPrefix(caller.GetName(), "system:") && !strings.HasPrefix(caller.GetName(), "system:serviceaccount:") && caller.GetName() != user.Anonymous {
		return true
	}
	return slices.ContainsFunc(caller.GetGroups(), func(g string) bool {
		return g == user.SystemPrivilegedGroup || g == user.NodesGroup || g == "system:serviceaccounts:kube-system"
	})
}
