package network

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/machine"
)

// ForwardingFile switches IPv4 forwarding.
const ForwardingFile = "/proc/sys/net/ipv4/ip_forward"

// natRules lets the nodes reach what the host reaches, under its address. The
// first two lines make the text apply to a machine with and without the table.
func natRules(p layout.Plan) string {
	return fmt.Sprintf(`table ip %[1]s {}
delete table ip %[1]s
table ip %[1]s {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr %[2]s oifname != "%[3]s" masquerade
	}
}
`, p.NATTable(), p.Subnet, p.HostLink())
}

// OpenOutside lets nodes out where the host itself has a way out, and switches
// the host's forwarding on for it where it was off.
func OpenOutside(ctx context.Context, p layout.Plan, nft string) error {
	out, err := hasWayOut()
	if err != nil || !out {
		return err
	}
	if err := runNft(ctx, nft, natRules(p)); err != nil {
		return err
	}
	now, err := os.ReadFile(ForwardingFile)
	if err != nil {
		return fmt.Errorf("read IPv4 forwarding: %w", err)
	}
	if strings.TrimSpace(string(now)) != "0" {
		return nil
	}
	if err := machine.NoteChange(machine.ForwardingMark); err != nil {
		return err
	}
	return SetForwarding("1")
}

func hasWayOut() (bool, error) {
	routes, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return false, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil {
			return true, nil
		}
		if bits, _ := r.Dst.Mask.Size(); bits == 0 {
			return true, nil
		}
	}
	return false, nil
}

// SetForwarding writes "1" to have IPv4 packets forwarded, "0" to have them dropped.
func SetForwarding(value string) error {
	if err := os.WriteFile(ForwardingFile, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set IPv4 forwarding to %s: %w", value, err)
	}
	return nil
}

// RemoveNAT removes the cluster's table; none is fine.
func RemoveNAT(ctx context.Context, p layout.Plan) error {
	nft := machine.LookPath("nft")
	if nft == "" {
		return nil // without nft no table was made
	}
	return runNft(ctx, nft, fmt.Sprintf("table ip %[1]s {}\ndelete table ip %[1]s\n", p.NATTable()))
}

func runNft(ctx context.Context, nft, rules string) error {
	cmd := exec.CommandContext(ctx, nft, "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply packet filter rules: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
