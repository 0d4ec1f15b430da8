package nftables

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

const sysctls = "/proc/sys/net/"

// Prepare sets the kernel up. detour says that packets between two pods on a bridge
// do not pass the packet filter here, see ruleset.Node.
func Prepare() (detour bool, err error) {
	// A pod that calls a Service and is led to its neighbour on the bridge would be
	// told by the node to go there directly next time, past the rules.
	for _, of := range []string{"all", "default", "cni0"} {
		if err := set("ipv4/conf/"+of+"/send_redirects", "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	if err := set("ipv4/ip_forward", "1"); err != nil {
		return false, err
	}
	err = set("bridge/bridge-nf-call-iptables", "1")
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// Prepare sets the kernel up again where somebody else, such as a reload of sysctl.conf, changed what Prepare set.
func (*Filter) Prepare() error {
	_, err := Prepare()
	return err
}

// set writes a kernel setting if it is another one.
func set(name, value string) error {
	path := sysctls + name
	now, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(now)) == value {
		return nil
	}
	if err == nil {
		err = os.WriteFile(path, []byte(value), 0o644)
	}
	if err != nil {
		return fmt.Errorf("set net/%s to %s: %w", name, value, err)
	}
	return nil
}
