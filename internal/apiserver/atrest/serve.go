package atrest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/everynode/everynode/internal/storage/encryption"
)

// Install serves the paths of package encryption. Who may ask is decided before.
func (k *Keeper) Install(handle func(path string, h http.Handler)) {
	handle(encryption.Path, answer(http.MethodGet, func(ctx context.Context) (any, error) { return k.Status(ctx) }))
	handle(encryption.RewritePath, answer(http.MethodPost, func(ctx context.Context) (any, error) {
		return k.Rewrite(ctx)
	}))
}

func answer(method string, ask func(context.Context) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method {
			http.Error(w, "only "+method+" is allowed", http.StatusMethodNotAllowed)
			return
		}
		said, err := ask(r.Context())
		var body []byte
		if err == nil {
			body, err = json.Marshal(said)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // whoever asked has gone if this fails
	}
}
