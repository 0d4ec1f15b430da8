package streaming

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// ServeHealth answers /healthz at the address until ctx ends, to whoever asks and without a secret: ok, or 500 and what
// check says.
func ServeHealth(ctx context.Context, address string, check func() error) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, "healthz check failed: "+err.Error(), http.StatusInternalServerError)
			return
		}
		writeText(w, "ok")
	})
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve the node's health: %w", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the node's health: %w", err)
	}
	return nil
}
