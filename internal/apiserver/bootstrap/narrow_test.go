package bootstrap

import (
	"slices"
	"testing"
)

// No control loop reads or writes the Secrets of all namespaces, but those that do with all kinds alike.
func TestNoLoopHasAllSecrets(t *testing.T) {
	for _, role := range ClusterRoles() {
		if !slices.ContainsFunc(controllers(), func(c controller) bool { return controllerPrefix+c.name == role.Name }) {
			continue
		}
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, "secrets") && len(rule.ResourceNames) == 0 {
				t.Errorf("%s may %v the Secrets of all namespaces", role.Name, rule.Verbs)
			}
		}
	}
}
