package network

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/local/layout"
)

func TestRulesOfTheWayOut(t *testing.T) {
	p := layout.New(layout.Options{DataDir: "/d", Nodes: 1}, layout.RuntimeContainerd,
		netip.MustParsePrefix("10.9.8.0/24"))
	if rules := natRules(p); !strings.Contains(rules, `ip saddr 10.9.8.0/24 oifname != "`+p.HostLink()+`" masquerade`) {
		t.Errorf("the rules are\n%s", rules)
	}
}
