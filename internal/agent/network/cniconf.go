package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/everynode/everynode/internal/files/wholefile"
)

// confName is the file in the CNI configuration folder; runtimes use the first
// one of the folder.
const confName = "10-everynode.conflist"

// bridge is the link that connects the pods of the node.
const bridge = "cni0"

// leases is where addresses in use are noted: on a file system that a restart
// of the machine empties, as it ends all pods.
const leases = "/run/everynode/cni-leases"

// networkName is what the CNI configuration calls our network.
const networkName = "everynode"

// cniConfig is the CNI configuration of a node whose pods get the addresses of
// a network and send packets of at most mtu bytes, as the link has it if that is
// 0. The loopback interface needs none: runtimes bring it up themselves.
func cniConfig(pods netip.Prefix, mtu int) ([]byte, error) {
	type object map[string]any
	connect := object{
		"type":             "bridge",
		"bridge":           bridge,
		"isGateway":        true,
		"isDefaultGateway": true,
		"forceAddress":     true,
		"hairpinMode":      true,
		// The plugin would masquerade what goes to other nodes' pods too.
		"ipMasq": false,
		"ipam": object{
			"type":    "host-local",
			"ranges":  [][]object{{{"subnet": pods.String()}}},
			"dataDir": leases,
		},
	}
	if mtu > 0 {
		connect["mtu"] = mtu
	}
	config := object{
		"cniVersion": "0.4.0",
		"name":       networkName,
		"plugins": []object{
			connect,
			{
				"type":         "portmap",
				"capabilities": object{"portMappings": true},
				"snat":         true,
			},
		},
	}
	raw, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode CNI configuration: %w", err)
	}
	return append(raw, '\n'), nil
}

// ahead is the name of a configuration that runtimes would use in place of ours, empty
// for none: they take the first by name.
func ahead(dir string) (string, error) {
	entries, err := os.ReadDir(dir) // in the order of their names
	if err != nil {
		return "", fmt.Errorf("list the CNI configurations: %w", err)
	}
	for _, e := range entries {
		if e.Name() >= confName {
			break
		}
		switch filepath.Ext(e.Name()) {
		case ".conf", ".conflist", ".json":
			return e.Name(), nil
		}
	}
	return "", nil
}

// inTheWay says what to do about another configuration, nil for none.
func inTheWay(dir, first string) error {
	if first == "" {
		return nil
	}
	return fmt.Errorf(
		"the container runtime would use %s, which comes before %s, and pods would not be in the cluster's network; remove "+
			"it, or run the agent with --pod-network none",
		filepath.Join(dir, first), confName,
	)
}

// writeConf replaces the CNI configuration so that a runtime that reads the
// folder at the same moment finds the old or the new one, whole. The temporary
// name has an ending that runtimes do not read.
func writeConf(dir string, content []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make CNI configuration folder: %w", err)
	}
	if first, err := ahead(dir); err != nil || first != "" {
		return errors.Join(err, inTheWay(dir, first))
	}
	path := filepath.Join(dir, confName)
	if old, err := os.ReadFile(path); err == nil && string(old) == string(content) {
		return nil
	}
	if err := wholefile.Write(path, 0o644, wholefile.Bytes(content)); err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}
	return nil
}
