package cli

import (
	"net"
	"testing"
)

// TestWhatAnAgentShowsToItsMachineAlone: what needs no certificate is at the loopback,
// unless the operator says otherwise.
func TestWhatAnAgentShowsToItsMachineAlone(t *testing.T) {
	flag := newAgentCommand().Flags().Lookup("proxy-metrics-bind-address")
	if flag == nil {
		t.Fatal("there is no such flag")
	}
	host, _, err := net.SplitHostPort(flag.DefValue)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		t.Errorf("metrics of the service proxy are at %s, %v", flag.DefValue, err)
	}
}
