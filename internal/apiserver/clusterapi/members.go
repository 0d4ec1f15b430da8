// Package clusterapi serves what is asked about the cluster itself rather than about its objects: which
// servers belong to it, which authorities agents trust, and backups of all that it keeps.
package clusterapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/mux"

	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/storage/members"
)

// Members is who changes and knows which servers belong to the cluster.
type Members interface {
	List(ctx context.Context) members.List
	// Admit lets a server join, with the join token of that ID; an empty one is an administrator's right.
	Admit(ctx context.Context, joining members.Joining, token string) (members.Welcome, error)
	Remove(ctx context.Context, name string) error
	// Leave has the server that is asked leave, if it has that name; an empty one is anybody's.
	Leave(ctx context.Context, name string) error
}

// maxJoining bounds what a server that wants to join may say, in bytes.
const maxJoining = 16 << 10

// ServeMembers answers about the servers. That the caller may ask was decided before;
// the cluster's keys are given out on one more condition.
func ServeMembers(on *mux.PathRecorderMux, m Members) {
	if m == nil {
		return
	}
	handler := membersHandler(m)
	on.Handle(members.Path, handler)
	on.HandlePrefix(members.Path+"/", handler)
}

func membersHandler(m Members) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+members.Path, func(w http.ResponseWriter,
		r *http.Request) {
		answer(w, m.List(r.Context()), nil)
	})
	mux.HandleFunc("POST "+members.Path, func(w http.ResponseWriter, r *http.Request) {
		token, ok := mayJoin(r.Context())
		if !ok {
			http.Error(w, "only a token that \"everynode token create --server\" makes lets a server join",
				http.StatusForbidden)
			return
		}
		var joining members.Joining
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxJoining)).Decode(&joining); err != nil {
			http.Error(w, "read who wants to join: "+err.Error(), http.StatusBadRequest)
			return
		}
		welcome, err := m.Admit(r.Context(), joining, token)
		answer(w, welcome, err)
	})
	mux.HandleFunc("DELETE "+members.Path+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, m.Remove(r.Context(), r.PathValue("name")))
	})
	mux.HandleFunc("POST "+members.LeavePath, func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, m.Leave(r.Context(), r.URL.Query().Get("name")))
	})
	return mux
}

// mayJoin reports whether the caller may have a server join, and the ID of the token by which he may.
func mayJoin(ctx context.Context) (token string, ok bool) {
	who, ok := request.UserFrom(ctx)
	if !ok {
		return "", false
	}
	ok = slices.Contains(who.GetGroups(), members.Group) || slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup)
	return authn.TokenID(who.GetName()), ok
}

// answer sends a value, or why there is none. An error that passes says so, to those
// who cannot import its package.
func answer(w http.ResponseWriter, value any, err error) {
	var passes interface{ Passes() bool }
	switch {
	case errors.As(err, &passes) && passes.Passes():
		http.Error(w, oneLine(err), http.StatusServiceUnavailable)
		return
	case err != nil:
		http.Error(w, oneLine(err), http.StatusConflict)
		return
	}
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, oneLine(fmt.Errorf("encode the answer: %w", err)), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // who asked has gone if this fails
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
