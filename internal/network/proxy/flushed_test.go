package proxy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestWhatOthersTakeFromServicesComesBack(t *testing.T) {
	r := onNode(t, true)
	r.set(aService(), "c")
	for _, by := range []string{"nft flush ruleset", "nft flush table ip everynode-services", "nft flush chain ip everynode-services services"} {
		must(t, r.node.do(func() error {
			args := strings.Fields(by)
			out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w: %s", by, err, out)
			}
			return r.proxy.check(context.Background())
		}))
		if !r.proxy.whole {
			t.Errorf("%q was not noticed", by)
		}
		r.sync()
		r.expect(r.a, "tcp", clusterTCP, "c 10.244.1.2")
	}
	// A reload of sysctl.conf that says so.
	const forwarding = "/proc/sys/net/ipv4/ip_forward"
	must(t, r.node.do(func() error {
		if err := os.WriteFile(forwarding, []byte("0"), 0o644); err != nil {
			return err
		}
		if err := r.proxy.check(context.Background()); err != nil {
			return err
		}
		if now, err := os.ReadFile(forwarding); err != nil || strings.TrimSpace(string(now)) != "1" {
			return fmt.Errorf("packets are forwarded: %s, %w", now, err)
		}
		return nil
	}))
	if r.proxy.whole {
		t.Error("rules that nobody changed are written again")
	}
}
