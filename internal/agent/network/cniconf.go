package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// confName is the file in the CNI configuration folder; runtimes use the first
// one of the folder.
const confName = "10-everynode.conflist"

// leases is where addresses in use are noted: on a file system that a restart
// of the machine empties, as it ends all pods.
const leases = "/run/everynode/cni-leases"

// cniConfig is the CNI configuration of a node whose pods get the addresses of
// a network. The loopback interface needs none: runtimes bring it up themselves.
func cniConfig(pods netip.Prefix) ([]byte, error) {
	type object map[string]any
	config := object{
		"cniVersion": "0.4.0",
		"name":       "everynode",
		"plugins": []object{
			{
				"type":             "bridge",
				"bridge":           "cni0",
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
			},
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
