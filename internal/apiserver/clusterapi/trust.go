package clusterapi

import (
	"encoding/json"
	"net/http"
	"net/netip"

	"github.com/everynode/everynode/internal/node/trust"
	"github.com/everynode/everynode/internal/pki"
)

// TellTrust answers agents which authorities count now, where the servers are, and of which restore
// the control plane is.
func TellTrust(keys *pki.Bundle, servers func() []netip.AddrPort, restored string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "only GET is allowed", http.StatusMethodNotAllowed)
			return
		}
		told := trust.Bundle{Authorities: string(keys.CAPEM()), NodeAuthorities: string(keys.NodeCAPEM()),
			Restored: restored}
		if servers != nil {
			told.Servers = servers()
		}
		body, err := json.Marshal(told)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // the agent has gone if this fails
	}
}
