package bootstrap

import (
	"slices"
	"strings"
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

// A policy's content is read where somebody in the namespace has allowed it, and nowhere else.
func TestContentRolesAreBoundToNobody(t *testing.T) {
	found := 0
	for _, role := range ClusterRoles() {
		if strings.HasPrefix(role.Name, "everynode:content") {
			found++
		}
	}
	if found != 2 {
		t.Errorf("there are %d roles for content, want 2", found)
	}
	for _, b := range ClusterRoleBindings() {
		if strings.HasPrefix(b.RoleRef.Name, "everynode:content") {
			t.Errorf("%s is bound to %v in all namespaces", b.RoleRef.Name, b.Subjects)
		}
	}
}
