// Package quorum ends the watches through a server that is cut off from the majority of the servers, and its reads from
// memory. What the others write it does not hear, so whoever watches at it would take what is old for what is.
package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/healthz"
)

// Who is refused may ask again after so many seconds: elsewhere if a balancer is between. Chance keeps a whole fleet
// from asking at once where no server has a quorum.
const retryFrom, retryTo = 2, 8

// Guard hands requests on to the API. Once the context that quorum returns has ended, watches that began before
// end, in order, and new ones are refused, as are reads that the memory of the server may answer: their connections are
// closed with the answer, so that a balancer can lead the client to another server. It takes them again when quorum
// returns another context. Requests that are spared are handed on as they are.
func Guard(api http.Handler, codecs runtime.NegotiatedSerializer, quorum func() context.Context,
	spared func(*http.Request) bool,
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest || spared(r) {
			api.ServeHTTP(w, r)
			return
		}
		quorate := quorum()
		switch {
		case quorate.Err() != nil && hears(info, r):
			w.Header().Set("Connection", "close") // a GOAWAY in HTTP/2
			version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
			responsewriters.ErrorNegotiated(cutOff(quorate), codecs, version, w, r)
			return
		case info.Verb != "watch":
			api.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(quorate, cancel)() // no goroutine waits for each of very many watches
		api.ServeHTTP(w, r.WithContext(ctx))
	})
}

// hears reports whether the answer to a request comes from what the server has heard. All else asks a majority, and
// fails without one.
func hears(info *request.RequestInfo, r *http.Request) bool {
	switch info.Verb {
	case "watch":
		return true
	case "get", "list":
		return r.URL.Query().Get("resourceVersion") != ""
	}
	return false
}

// Ready is a check that fails while the context that quorum returns has ended, so that a balancer prefers other
// servers.
func Ready(quorum func() context.Context) healthz.HealthChecker {
	return healthz.NamedCheck("quorum", func(*http.Request) error {
		if quorate := quorum(); quorate.Err() != nil {
			return cutOff(quorate)
		}
		return nil
	})
}

// cutOff is what to tell while a context that quorum returned has ended; its cause says why.
func cutOff(quorate context.Context) error {
	after := retryFrom + rand.Int32N(retryTo-retryFrom) //nolint:gosec // Chance only spreads the work.
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: fmt.Sprintf("this server is cut off from the majority of the servers, and does not hear of changes (%v); "+
			"ask another one", context.Cause(quorate)),
		Details: &metav1.StatusDetails{RetryAfterSeconds: after},
	}}
}
