package remember

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/node/peer"
)

func someNetworks() *Networks {
	return &Networks{
		Pods: node.PodNetworks{Cluster: netip.MustParsePrefix("10.244.0.0/16"), NodeBits: 24},
		Nodes: []*peer.Node{{ObjectMeta: named("", "a"), Addresses: []string{"10.0.0.1"}, PodCIDRs: []string{"10.244.1.0/24"}},
			{ObjectMeta: named("", "b")}},
	}
}

func TestNetworkKeeper(t *testing.T) {
	path, clock := filepath.Join(t.TempDir(), "file"), testclock.NewFakeClock(time.Now())
	keeper, known, err := NewNetworkKeeper(path, someNetworks, clock)
	if known != nil || err != nil {
		t.Fatalf("it knows %v, %v", known, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- keeper.Run(ctx) }()
	keeper.Note()
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	_, known, err = NewNetworkKeeper(path, someNetworks, clock)
	if err != nil || !reflect.DeepEqual(known, someNetworks()) {
		t.Errorf("it knows %+v (%v), want %+v", known, err, someNetworks())
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
}

func TestNetworksFileThatIsBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := writeLines(path, Seal{}, someNetworks().lines()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty": "", "cut off": string(whole[:len(whole)-5]), "without its end": string(whole[:strings.LastIndex(strings.TrimSpace(string(whole)), "\n")+1]),
		"nonsense": "{\"pods\":7}\n", "another file": "{\"service\":{}}\n{\"objects\":1}\n", "a node without a name": "{\"node\":{\"metadata\":{}}}\n{\"objects\":1}\n",
		"no network": "{\"pods\":{\"Cluster\":\"everything\"}}\n{\"objects\":1}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, known, err := NewNetworkKeeper(path, someNetworks, testclock.NewFakeClock(time.Now()))
		if err == nil || known != nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: it knows %+v, %v", name, known, err)
		}
	}
}
